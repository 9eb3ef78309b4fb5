//! Charts as pictures.

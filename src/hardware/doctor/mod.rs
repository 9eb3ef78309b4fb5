//! Is the machine fit to train on? Each check looks at a [`Machine`] and says what it found, why, and what to do. Nothing is
//! asked, changed, reset or ended here.

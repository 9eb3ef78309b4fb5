//! What a reader of rows provides besides the source: the locations of files and of the hub, and the purpose of reading.

use crate::data::Unit;
use crate::hub::HubConfig;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// What reading needs to know beyond the source itself.
#[derive(Clone, Default)]
pub struct ReadContext {
    /// Where relative paths start; the working directory when empty.
    pub base: PathBuf,
    /// Where the hub is, and its cache. The default has neither: data sets of the hub are an error then.
    pub hub: HubConfig,
    /// Hears of downloads.
    pub progress: Option<Progress>,
    /// The unit that the method needs, if one is known: it may decide between two formats that fit equally well.
    pub unit: Option<Unit>,
    /// Files behind a broken one are read too: to judge all of them. Training on them would pass over what is missing.
    pub past_broken: bool,
}

/// Takes one line on what is being fetched: the file, bytes so far, bytes in all.
pub type Progress = Arc<dyn Fn(&str, u64, u64) + Send + Sync>;

impl fmt::Debug for ReadContext {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("ReadContext")
            .field("base", &self.base)
            .field("hub", &self.hub)
            .finish_non_exhaustive()
    }
}

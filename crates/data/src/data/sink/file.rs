//! The file under a sink: written under a temporary name, compressed according to its name, renamed when complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// zstd's own default.
const ZSTD_LEVEL: i32 = 3;

enum Out {
    Plain(BufWriter<File>),
    Gzip(flate2::write::GzEncoder<BufWriter<File>>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
}

/// A file that takes its name when it is whole.
pub(super) struct Target {
    path: PathBuf,
    temporary: PathBuf,
    /// `None` once it is committed.
    out: Option<Out>,
}

impl Target {
    pub fn create(path: &Path) -> io::Result<Target> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let name = name.to_string_lossy();
        let temporary = crate::base::files::temporary_sibling(path)?;
        let file = BufWriter::new(File::create(&temporary)?);
        let out = match name.to_lowercase() {
            name if name.ends_with(".gz") => Out::Gzip(flate2::write::GzEncoder::new(
                file,
                flate2::Compression::default(),
            )),
            name if name.ends_with(".zst") => Out::Zstd(zstd::Encoder::new(file, ZSTD_LEVEL)?),
            _ => Out::Plain(file),
        };
        Ok(Target {
            path: path.to_path_buf(),
            temporary,
            out: Some(out),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the compression, fsyncs and renames.
    pub fn commit(mut self) -> io::Result<()> {
        let file = match self.out.take() {
            Some(Out::Plain(out)) => out,
            Some(Out::Gzip(out)) => out.finish()?,
            Some(Out::Zstd(out)) => out.finish()?,
            None => return Ok(()),
        };
        let file = file.into_inner().map_err(|e| e.into_error())?;
        file.sync_all()?;
        std::fs::rename(&self.temporary, &self.path)?;
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty());
        crate::base::files::sync_dir(folder.unwrap_or(Path::new(".")))
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Some(Out::Plain(out)) => out.write(bytes),
            Some(Out::Gzip(out)) => out.write(bytes),
            Some(Out::Zstd(out)) => out.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Some(Out::Plain(out)) => out.flush(),
            Some(Out::Gzip(out)) => out.flush(),
            Some(Out::Zstd(out)) => out.flush(),
            None => Ok(()),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // After a commit it is gone already.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

//! The world in one file of JSON, so that a restart goes on where this ended. It holds keys, so it is nobody else's to read.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::Error;
use super::world::World;

#[derive(Debug, Clone)]
pub struct StateFile(PathBuf);

impl StateFile {
    /// # Errors
    /// The folder cannot be made.
    pub fn in_folder(folder: &Path) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|source| Error::StateFile { path: folder.to_owned(), source })?;
        Ok(Self(folder.join("local-stripe.json")))
    }

    /// None where nothing was kept yet.
    ///
    /// # Errors
    /// The file cannot be read, or is not ours; it is never replaced then.
    pub fn load(&self) -> Result<Option<World>, Error> {
        match fs::read(&self.0) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map(Some).map_err(|source| Error::StateRejected { path: self.0.clone(), source })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::StateFile { path: self.0.clone(), source }),
        }
    }

    /// Whole or not at all: a process that dies here leaves the last state.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, world: &World) -> Result<(), Error> {
        let fail = |source| Error::StateFile { path: self.0.clone(), source };
        let beside = self.0.with_extension("new");
        let bytes = serde_json::to_vec(world).map_err(|error| fail(error.into()))?;
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&beside).and_then(|mut file| file.write_all(&bytes)).map_err(fail)?;
        fs::rename(&beside, &self.0).map_err(fail)
    }
}

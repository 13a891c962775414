//! The signing key: RSA-2048, made once, kept in a file, so that tokens signed before a restart still verify after it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::Error;

pub struct SigningKey {
    pair: KeyPair,
    kid: String,
}

/// The public half, as Kinde publishes it.
#[derive(Debug, Clone, Serialize)]
pub struct Jwk {
    pub kty: &'static str,
    #[serde(rename = "use")]
    pub purpose: &'static str,
    pub alg: &'static str,
    pub kid: String,
    /// Modulus and exponent: unsigned big-endian bytes in base64url.
    pub n: String,
    pub e: String,
}

/// The body of `/.well-known/jwks`.
#[derive(Debug, Clone, Serialize)]
pub struct Jwks {
    pub keys: Vec<Jwk>,
}

impl SigningKey {
    /// The key in `folder`; made there, with the folder, if there is none yet.
    ///
    /// # Errors
    /// The file cannot be read, written or understood, or no key could be made.
    pub fn load_or_make(folder: &Path) -> Result<Self, Error> {
        let path = key_file(folder);
        let at = |source| Error::KeyFile { path: path.clone(), source };
        let der = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let pair = KeyPair::generate(KeySize::Rsa2048).map_err(|_| Error::Crypto)?;
                let der: Pkcs8V1Der<'_> = pair.as_der().map_err(|_| Error::Crypto)?;
                place(der.as_ref(), folder, &path).map_err(at)?;
                // Read back, not kept: if two processes start at once, both sign with the one that was there first.
                fs::read(&path).map_err(at)?
            }
            other => other.map_err(at)?,
        };
        let pair = KeyPair::from_pkcs8(&der).map_err(|_| Error::KeyRejected { path: path.clone() })?;
        let kid = kid_of(pair.public_key().as_ref());
        Ok(Self { pair, kid })
    }

    /// Whether `folder` holds a key already.
    pub fn is_in(folder: &Path) -> bool {
        key_file(folder).exists()
    }

    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub fn jwks(&self) -> Jwks {
        let public = self.pair.public_key();
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        Jwks {
            keys: vec![Jwk {
                kty: "RSA",
                purpose: "sig",
                alg: "RS256",
                kid: self.kid.clone(),
                n: number(public.modulus().big_endian_without_leading_zero()),
                e: number(public.exponent().big_endian_without_leading_zero()),
            }],
        }
    }

    /// The compact JWT over exactly these claims bytes.
    ///
    /// # Errors
    /// The library refused to sign.
    pub fn sign(&self, claims: &[u8]) -> Result<String, Error> {
        let header = format!(r#"{{"alg":"RS256","kid":"{}","typ":"JWT"}}"#, self.kid);
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair
            .sign(&RSA_PKCS1_SHA256, &aws_lc_rs::rand::SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|_| Error::Crypto)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

fn key_file(folder: &Path) -> PathBuf {
    folder.join("signing-key.pkcs8")
}

/// Written beside `path`, then linked there: never half a file, and never over a key that came first.
fn place(der: &[u8], folder: &Path, path: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let draft = folder.join(format!("signing-key.{:016x}", rand::random::<u64>()));
    let linked = private_file(&draft)
        .and_then(|mut file| file.write_all(der).and_then(|()| file.sync_all()))
        .and_then(|()| fs::hard_link(&draft, path));
    let tidied = fs::remove_file(&draft);
    match linked {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => tidied,
    }
}

fn private_file(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// 16 hex bytes joined by colons, the form of Kinde's; from the key itself, so there is no second file to keep in step.
fn kid_of(public_key: &[u8]) -> String {
    let bytes: Vec<String> = Sha256::digest(public_key).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

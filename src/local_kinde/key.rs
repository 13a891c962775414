//! The signing keys: RSA-2048. The one that signs is kept in a file, so that tokens signed before a restart still verify after it
//! and a command can sign with it too; of those it replaced only the public halves remain, in the state file.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Error;
use super::moment::At;
use super::store;

pub struct SigningKey {
    pair: KeyPair,
    kid: String,
}

/// The public half, as Kinde publishes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jwk {
    pub kty: String,
    #[serde(rename = "use")]
    pub purpose: String,
    pub alg: String,
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
                place(&fresh()?, folder, &path).map_err(at)?;
                // Read back, not kept: if two processes start at once, both sign with the one that was there first.
                fs::read(&path).map_err(at)?
            }
            other => other.map_err(at)?,
        };
        Self::read(&der).ok_or(Error::KeyRejected { path })
    }

    /// A new key, not yet in any folder, with the bytes to keep it by.
    ///
    /// # Errors
    /// No key could be made.
    pub fn make() -> Result<(Self, Vec<u8>), Error> {
        let der = fresh()?;
        Ok((Self::read(&der).ok_or(Error::Crypto)?, der))
    }

    /// Puts a key that was made in the place of the one in `folder`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn put(der: &[u8], folder: &Path) -> Result<(), Error> {
        let path = key_file(folder);
        store::replace(&path, der).map_err(|source| Error::KeyFile { path, source })
    }

    fn read(der: &[u8]) -> Option<Self> {
        let pair = KeyPair::from_pkcs8(der).ok()?;
        let kid = kid_of(pair.public_key().as_ref());
        Some(Self { pair, kid })
    }

    /// Whether `folder` holds a key already.
    pub fn is_in(folder: &Path) -> bool {
        key_file(folder).exists()
    }

    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub fn jwk(&self) -> Jwk {
        let public = self.pair.public_key();
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        Jwk {
            kty: "RSA".into(),
            purpose: "sig".into(),
            alg: "RS256".into(),
            kid: self.kid.clone(),
            n: number(public.modulus().big_endian_without_leading_zero()),
            e: number(public.exponent().big_endian_without_leading_zero()),
        }
    }

    pub fn jwks(&self) -> Jwks {
        Jwks { keys: vec![self.jwk()] }
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

impl Jwks {
    /// The claims of a token that one of these keys signed for `issuer` and that has not expired. An event's token has no
    /// expiry, so it never passes here.
    pub fn claims(&self, token: &str, issuer: &str) -> Option<Value> {
        let kid = jsonwebtoken::decode_header(token).ok()?.kid?;
        let jwk = self.keys.iter().find(|key| key.kid == kid)?;
        let key = DecodingKey::from_rsa_components(&jwk.n, &jwk.e).ok()?;
        let mut demands = Validation::new(Algorithm::RS256);
        demands.set_required_spec_claims(&["exp", "iss"]);
        demands.set_issuer(&[issuer]);
        demands.validate_aud = false;
        demands.leeway = 0;
        let claims = jsonwebtoken::decode::<Value>(token, &key, &demands).ok()?.claims;
        // The library still takes a token in the second in which it expires.
        (claims["exp"].as_i64()? > At::now().unix()).then_some(claims)
    }
}

fn fresh() -> Result<Vec<u8>, Error> {
    let pair = KeyPair::generate(KeySize::Rsa2048).map_err(|_| Error::Crypto)?;
    let der: Pkcs8V1Der<'_> = pair.as_der().map_err(|_| Error::Crypto)?;
    Ok(der.as_ref().to_vec())
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

/// Nobody else's to read.
pub fn private_file(path: &Path) -> io::Result<fs::File> {
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

//! A person's tokens at Kinde, in their session's record and nowhere else: sealed, so that who reads the database cannot use
//! them, and bound to the account, so that who writes it cannot swap them. The browser never has them.

use tokio::sync::{Mutex, MutexGuard};
use tower_sessions::Session;

use super::person::Person;
use crate::config::Secret;
use crate::domain::ids::AccountId;
use crate::oidc::{Oidc, OidcError, Tokens};
use crate::seal::Seal;

/// The key of a session's record that holds them.
const TOKENS: &str = "tokens";
/// Renewals that can run at once in this process; those of one account never do.
const LANES: usize = 64;
/// How long to wait for the tokens another process was given for the ones we came too late with.
const OTHERS_TRIES: u32 = 5;
const OTHERS_WAIT: std::time::Duration = std::time::Duration::from_millis(200);

/// Seals and renews tokens.
pub struct Vault {
    seal: Seal,
    renewing: Vec<Mutex<()>>,
}

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error(transparent)]
    Kinde(#[from] OidcError),
    #[error("the session could not be read or written")]
    Session(#[from] tower_sessions::session::Error),
}

impl Vault {
    pub fn new(secret: &Secret) -> Self {
        Self { seal: Seal::new(secret, "the tokens of a session"), renewing: (0..LANES).map(|_| Mutex::default()).collect() }
    }

    /// Puts them into the session, which the caller saves.
    ///
    /// # Errors
    /// The session cannot be read.
    pub async fn put(
        &self,
        session: &Session,
        account: AccountId,
        tokens: &Tokens,
    ) -> Result<(), tower_sessions::session::Error> {
        let content = serde_json::to_vec(tokens)?;
        session.insert(TOKENS, self.seal.seal(&content, &owner(account))).await
    }

    /// The person's tokens, renewed first if they are old.
    ///
    /// # Errors
    /// What Kinde said. `SignInAgain` also when there are none, or none that the session key opens.
    pub async fn fresh(&self, oidc: &Oidc, session: &Session, person: &Person) -> Result<Tokens, VaultError> {
        let tokens = self.get(session, person.account).await?.ok_or(OidcError::SignInAgain)?;
        if tokens.is_old() { self.renew(oidc, session, person, &tokens).await } else { Ok(tokens) }
    }

    /// Each refresh token is taken once. Two tabs take turns here; of two processes the slower one finds in the session what
    /// the faster one was given.
    ///
    /// # Errors
    /// As [`Vault::fresh`].
    pub async fn renew(&self, oidc: &Oidc, session: &Session, person: &Person, old: &Tokens) -> Result<Tokens, VaultError> {
        let _turn = self.turn(person.account).await;
        if let Some(newer) = self.newer(session, person.account, old).await? {
            return Ok(newer);
        }
        match oidc.refresh(old).await {
            Ok(tokens) => {
                self.put(session, person.account, &tokens).await?;
                // At once: Kinde has forgotten the old one already.
                session.save().await?;
                Ok(tokens)
            }
            Err(OidcError::SignInAgain) => {
                for _ in 0..OTHERS_TRIES {
                    tokio::time::sleep(OTHERS_WAIT).await;
                    if let Some(newer) = self.newer(session, person.account, old).await? {
                        return Ok(newer);
                    }
                }
                Err(OidcError::SignInAgain.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn get(&self, session: &Session, account: AccountId) -> Result<Option<Tokens>, tower_sessions::session::Error> {
        let sealed: Option<String> = session.get(TOKENS).await?;
        let content = sealed.and_then(|sealed| self.seal.open(&sealed, &owner(account)));
        Ok(content.and_then(|content| serde_json::from_slice(&content).ok()))
    }

    async fn turn(&self, account: AccountId) -> MutexGuard<'_, ()> {
        let lane = usize::try_from(account.0.unsigned_abs()).unwrap_or_default() % LANES;
        self.renewing[lane].lock().await
    }

    /// What the session has by now, if it is something else.
    async fn newer(&self, session: &Session, account: AccountId, old: &Tokens) -> Result<Option<Tokens>, VaultError> {
        session.load().await?;
        Ok(self.get(session, account).await?.filter(|tokens| tokens != old))
    }
}

fn owner(account: AccountId) -> String {
    format!("account {account}")
}

//! What Kinde says is true now: each customer's agreements, and who is a customer. It lists neither events nor money.

use super::Kinde;
use crate::domain::ask_again::Party;
use crate::domain::fact::Fact;
use crate::domain::ids::KindeUserId;
use crate::domain::instant::Instant;
use crate::providers::listing::{ListError, Lists, Page};

impl Kinde {
    pub fn lists(&self) -> Lists {
        let plans = self.management.is_some();
        Lists { plans, by_user: true, events: false, books: false }
    }

    /// The agreements that are live of all the customers that one person is.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn plans(&self, party: &Party, asked: Instant) -> Result<Option<Vec<Fact>>, ListError> {
        let management = self.management.as_ref().ok_or_else(ListError::not_set_up)?;
        let mut customers = party.customers.clone();
        if let (true, Some(user)) = (customers.is_empty(), &party.user) {
            customers.extend(management.customer_of(user).await?);
        }
        let mut live: Option<Vec<_>> = None;
        for customer in &customers {
            if let Some(answer) = management.agreements_of(customer, asked).await? {
                live.get_or_insert_default().extend(answer.live);
            }
        }
        Ok(live.map(|mut live| {
            live.sort();
            vec![Fact::Snapshot { live }]
        }))
    }

    /// Users who are customers.
    ///
    /// # Errors
    /// See [`ListError`].
    pub async fn customers(&self, after: Option<&str>) -> Result<Page<Party>, ListError> {
        let management = self.management.as_ref().ok_or_else(ListError::not_set_up)?;
        let (users, next) = management.users(after).await?;
        let customers = users
            .into_iter()
            .filter_map(|user| Some(Party { customers: vec![user.customer?], user: Some(KindeUserId(user.id)) }));
        Ok(Page { items: customers.collect(), next })
    }
}

//! The face: pages and the webhook endpoint. `routes` has every URL; `error` alone knows status codes.

pub mod routes;
pub mod state;
pub mod server;
pub mod webhooks;
pub mod health;
pub mod error;

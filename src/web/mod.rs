//! The face: pages and the webhook endpoint. `routes` has every URL; `error` alone knows status codes. Templates are named
//! like the modules here.

pub mod routes;
pub mod state;
pub mod server;
pub mod webhooks;
pub mod health;
pub mod error;
pub mod error_page;
pub mod home;
pub mod engine_room_view;
pub mod score;
pub mod gauge;
pub mod page;
pub mod assets;

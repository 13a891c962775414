//! The face: pages and the webhook endpoint. `routes` has every URL; `error` alone knows status codes. Templates are named
//! like the modules here.

pub mod assets;
pub mod engine_room;
pub mod engine_room_panels;
pub mod engine_room_view;
pub mod error;
pub mod error_page;
pub mod gauge;
pub mod health;
pub mod home;
pub mod page;
pub mod person;
pub mod routes;
pub mod score;
pub mod server;
pub mod state;
pub mod webhooks;

//! The face: pages, and the files they need. Templates are named like the modules here.

pub mod assets;
mod engine_room_panels;
pub mod engine_room_view;
pub mod error_page;
mod gauge;
pub mod home;
mod page;
mod score;

//! The face: pages, and the files they need. Templates are named like the modules here.

pub mod assets;
pub mod engine_room_view;
pub mod error_page;
pub mod gauge;
pub mod home;
pub mod page;
pub mod score;

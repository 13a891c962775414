//! One test binary. Each module is a subject; `support` holds what they share.

mod engine_room_page;
mod fold;
mod local_kinde;
mod naive;
mod oracle;
mod support;

//! One test binary. Each module is a subject; `support` holds what they share.
mod local_kinde;

//! One test binary. Each module is a subject; `support` holds what they share.

mod fold;
mod oracle;
mod support;
mod local_kinde;

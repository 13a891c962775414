//! Sign-in: OAuth 2.0's authorization code with PKCE, OpenID Connect on top, under Kinde's paths.

pub mod authorize;
pub mod checkout;
pub mod discovery;
pub mod inspect;
pub mod logout;
pub mod params;
pub mod profile;
pub mod request;
pub mod session;
pub mod sign_in;
pub mod token;
pub mod tokens;

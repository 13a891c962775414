//! The token endpoint, called through the guarded client, and its refusals sorted by what they ask of people.

use std::pin::Pin;

use oauth2::basic::{
    BasicErrorResponse, BasicErrorResponseType, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse, BasicTokenType,
};
use oauth2::{
    AsyncHttpClient, EndpointNotSet, EndpointSet, ExtraTokenFields, HttpRequest, HttpResponse, RequestTokenError,
    StandardRevocableToken, StandardTokenResponse,
};
use serde::{Deserialize, Serialize};

use super::{MAX_ANSWER, OidcError};
use crate::outbound::{self, OutboundError};
use crate::telemetry::labels::Call;

pub(super) type Answer = StandardTokenResponse<Extra, BasicTokenType>;

pub(super) type OauthClient<Auth = EndpointNotSet, Token = EndpointNotSet> = oauth2::Client<
    BasicErrorResponse,
    Answer,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    Auth,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    Token,
>;

/// Both addresses it needs are known.
pub(super) type Ready = OauthClient<EndpointSet, EndpointSet>;

/// What OpenID Connect adds to a token answer.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct Extra {
    pub id_token: Option<String>,
}

impl ExtraTokenFields for Extra {}

impl std::fmt::Debug for Extra {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Extra(not shown)")
    }
}

/// The guarded client, as the OAuth library wants one.
pub(super) struct Guarded<'a>(pub &'a outbound::Client);

impl<'c> AsyncHttpClient<'c> for Guarded<'_> {
    type Error = OutboundError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, OutboundError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move {
            let request = request.try_into().map_err(OutboundError::Unavailable)?;
            let answer = self.0.call(Call::KindeSignIn, request, MAX_ANSWER).await?;
            // The library takes whatever is no 200 for a refusal of this request, and a server in trouble has judged nothing.
            if answer.status.is_server_error() || answer.status == reqwest::StatusCode::TOO_MANY_REQUESTS {
                return Err(OutboundError::Status(answer.status));
            }
            let mut response = HttpResponse::new(answer.body);
            *response.status_mut() = answer.status;
            *response.headers_mut() = answer.headers;
            Ok(response)
        })
    }
}

/// `refused` is what it means here that Kinde does not take what it was given.
///
/// Neither the answer's text nor Kinde's description goes any further: both may repeat what was sent.
pub(super) fn sorted(error: RequestTokenError<OutboundError, BasicErrorResponse>, refused: OidcError) -> OidcError {
    match error {
        RequestTokenError::ServerResponse(answer) => match answer.error() {
            BasicErrorResponseType::InvalidGrant => refused,
            BasicErrorResponseType::Extension(_) => OidcError::NotSetUp("for a reason of its own".to_owned()),
            other => OidcError::NotSetUp(other.as_ref().to_owned()),
        },
        RequestTokenError::Request(source) => OidcError::Away { what: "its token endpoint", source: Some(source) },
        RequestTokenError::Parse(..) | RequestTokenError::Other(_) => {
            OidcError::NotGenuine("the token endpoint's answer cannot be read")
        }
    }
}

//! Tokens: issue, revoke, and authenticate callers.
//!
//! A token is `exa_`, its public number, `_` and 32 random bytes, the numbers in hex. The catalogue
//! keeps its SHA-256 and not the token. So a reader of the catalogue's disk cannot act as a user.

use std::hint::black_box;

use exacat_model::answer::TokenInfo;
use exacat_model::limits::{PAGE_ITEMS_MAX, TOKEN_NOTE_BYTES_MAX, TOKENS_PER_USER_MAX};
use exacat_model::{
    AccountName, Answer, Error, ErrorKind, ExpectRecord, Lfn, Mutation, OperationId, Record, RecordKey,
    RecordKind, Result, Revision, Token, TokenId, User, UserId,
};
use exacat_store::{Outcome, Refusal};
use sha2::{Digest, Sha256};

use crate::caller::Caller;
use crate::registry::Names;
use crate::repeat::refused;
use crate::{Catalogue, fill_random};

/// Prefix of tokens, so that a scan for leaked secrets finds them.
const PREFIX: &str = "exa_";
/// Random bytes of a token.
const SECRET_BYTES: usize = 32;
/// Most attempts to replace a secret when repeats run concurrently.
const RENEW_TRIES_MAX: usize = 8;

/// Request to issue a token.
pub(crate) struct TokenRequest {
    /// User of the token; none for the caller.
    pub user: Option<AccountName>,
    pub scope: Lfn,
    pub write: bool,
    pub lifetime_seconds: u64,
    pub note: String,
}

impl Catalogue {
    /// Returns the caller that a token stands for. Refuses unknown, revoked and expired tokens, and
    /// those of disabled users.
    pub async fn authenticate(&self, secret: &str) -> Result<Caller> {
        let refused =
            || Error::new(ErrorKind::Unauthenticated, "the token is not known here, or was revoked");
        let id = token_id(secret).ok_or_else(refused)?;
        let (token, revision) = self.token_version(id).await?.ok_or_else(refused)?;
        let hash: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        if !same_hash(&hash, &token.hash) {
            return Err(refused());
        }
        self.caller_of(token, revision).await
    }

    /// Returns the caller with this account's own rights. For callers that a face authenticates by
    /// other means: peer credentials of a local socket, or the start of the service.
    pub async fn caller_named(&self, name: &AccountName) -> Result<Caller> {
        let id = self.registry.names().user(name)?.id;
        self.caller_by_account(id, Lfn::root(), true).await
    }

    /// Returns the caller that an outside name (a certificate's subject) stands for, with the
    /// account's own rights. The face proves the name.
    pub async fn caller_of_subject(&self, subject: &str) -> Result<Caller> {
        let id = self.registry.names().user_of_subject(subject).map(|user| user.id);
        let unknown =
            || Error::new(ErrorKind::Unauthenticated, format!("no user has the subject {subject:.200?}"));
        self.caller_by_account(id.ok_or_else(unknown)?, Lfn::root(), true).await
    }

    /// Returns the caller for an account as the store has it now.
    async fn caller_by_account(&self, id: UserId, scope: Lfn, write: bool) -> Result<Caller> {
        let (user, revision) = self.enabled_user(id).await?;
        Ok(Caller::of(&user, scope, write).by_records([(RecordKey::User(id), revision)]))
    }

    /// Returns the caller acting as another account: an admin as any, others as those they may
    /// become. The token's limits (subtree, writing, expiry) remain.
    pub async fn become_user(&self, caller: &Caller, name: &AccountName) -> Result<Caller> {
        let (me, _) = self.enabled_user(caller.check_known()?).await?;
        let (target, revision) = self.enabled_user(self.registry.names().user(name)?.id).await?;
        if target.id != me.id && !caller.is_admin() && !me.may_become.contains(&target.id) {
            return Err(Error::denied(format!("you may not act as {name}")));
        }
        let mut other = Caller::of(&target, caller.scope().clone(), caller.may_write());
        if target.id == me.id {
            other = other.by_records(caller.records().iter().copied());
        } else {
            let records = caller.records().iter().copied().chain([(RecordKey::User(target.id), revision)]);
            other = other.instead_of(caller.original().unwrap_or(me.id)).by_records(records);
        }
        Ok(other.bounded_as(caller))
    }

    /// True if the token is still valid: neither revoked nor expired, and its user enabled. A face
    /// checks this at intervals, because a connection may outlive its token.
    pub async fn still_valid(&self, id: &TokenId) -> Result<bool> {
        match self.token_version(*id).await? {
            None => Ok(false),
            Some((token, revision)) => match self.caller_of(token, revision).await {
                Ok(_) => Ok(true),
                Err(error) if error.kind == ErrorKind::Unauthenticated => Ok(false),
                Err(error) => Err(error),
            },
        }
    }

    /// Returns the caller with its present roles and groups. Refuses it if its token or account is
    /// no longer valid. A caller that acts as another account continues to, if it still may.
    pub async fn revalidate(&self, caller: &Caller) -> Result<Caller> {
        let Some(user) = caller.user() else { return Ok(caller.clone()) };
        let base = match caller.token() {
            None => {
                let account = caller.original().unwrap_or(user);
                let base =
                    self.caller_by_account(account, caller.scope().clone(), caller.may_write()).await?;
                base.bounded_as(caller)
            }
            Some(id) => {
                let token = self.token_version(id).await?;
                let gone = || Error::new(ErrorKind::Unauthenticated, "the token was revoked");
                let (token, revision) = token.ok_or_else(gone)?;
                self.caller_of(token, revision).await?
            }
        };
        match caller.name() {
            Some(name) if base.user() != Some(user) => self.become_user(&base, name).await,
            _ => Ok(base),
        }
    }

    async fn token(&self, id: TokenId) -> Result<Option<Token>> {
        Ok(self.token_version(id).await?.map(|(token, _)| token))
    }

    async fn token_version(&self, id: TokenId) -> Result<Option<(Token, Revision)>> {
        match self.store.record(RecordKey::Token(id)).await? {
            Some((Record::Token(token), revision)) => Ok(Some((token, revision))),
            _ => Ok(None),
        }
    }

    async fn caller_of(&self, token: Token, revision: Revision) -> Result<Caller> {
        let caller = self.caller_by_account(token.user, token.scope, token.write).await?;
        let caller = caller.by_token(token.id, token.expires);
        let caller = caller.by_records([(RecordKey::Token(token.id), revision)]);
        caller.check_not_expired(self.clock.now())?;
        Ok(caller)
    }

    /// Returns the user as the store has it now, and its version.
    async fn enabled_user(&self, id: UserId) -> Result<(User, Revision)> {
        match self.store.record(RecordKey::User(id)).await? {
            Some((Record::User(user), revision)) if !user.disabled => {
                // On a store that several servers share, this server may not know a new user yet.
                if self.registry.names().users.get(&id).is_none_or(|known| **known != user) {
                    self.registry.refresh(&*self.store).await?;
                }
                Ok((user, revision))
            }
            Some((Record::User(user), _)) => {
                Err(Error::new(ErrorKind::Unauthenticated, format!("the account {} is disabled", user.name)))
            }
            _ => Err(Error::new(ErrorKind::Unauthenticated, "the account is gone")),
        }
    }

    pub(crate) async fn token_issue(
        &self,
        caller: &Caller,
        id: OperationId,
        request: TokenRequest,
    ) -> Result<Answer> {
        let TokenRequest { user, scope, write, lifetime_seconds, note } = request;
        let me = caller.check_known()?;
        let user = match &user {
            None => me,
            Some(name) => self.registry.names().user(name)?.id,
        };
        if user != me {
            caller.check_admin("to issue a token for another user")?;
        }
        let now = self.clock.now();
        // The number follows from the operation, so that a repeat finds the token it issued.
        let number = token_number(id);
        let token = Token {
            id: number,
            hash: [0; 32],
            user,
            issued: now,
            expires: now.plus_ms(lifetime_seconds.saturating_mul(1000)),
            scope,
            write,
            note,
        };
        if self.token(number).await?.is_some() {
            return self.renew_secret(caller, token).await;
        }
        self.enabled_user(user).await.map_err(|error| Error::denied(error.message))?;
        self.check_token(caller, &token, lifetime_seconds)?;
        self.check_token_count(user).await?;
        let (secret, hash) = new_secret(number)?;
        let token = Token { hash, ..token };
        let record = Box::new(Record::Token(token.clone()));
        let issue = Mutation::SetRecord { record, expect: ExpectRecord::Absent };
        match self.apply(caller, id, vec![issue]).await?.pop() {
            Some(Outcome::Applied { .. }) => {}
            Some(Outcome::Refused(refusal)) => return Err(refused("the token", refusal)),
            _ => return Err(Error::new(ErrorKind::Internal, "a new token changed nothing")),
        }
        // If the token was issued and revoked before, the store returned the first outcome.
        match self.token(number).await? {
            Some(there) if there.hash == token.hash => {
                let token = Box::new(token_info(&self.registry.names(), &token));
                Ok(Answer::TokenIssued { token, secret })
            }
            Some(_) => self.renew_secret(caller, token).await,
            None => Err(Error::not_found("the token was issued before, and revoked since")),
        }
    }

    /// Gives the token of a repeated request a new secret, and voids the old one. The old secret
    /// went with the lost answer and is kept nowhere. An operation id is no secret, so the caller
    /// must be allowed to issue the token as it is.
    async fn renew_secret(&self, caller: &Caller, asked: Token) -> Result<Answer> {
        for _ in 0..RENEW_TRIES_MAX {
            let Some((Record::Token(known), revision)) =
                self.store.record(RecordKey::Token(asked.id)).await?
            else {
                return Err(Error::not_found("the token was issued before, and revoked since"));
            };
            let same = known.user == asked.user
                && known.scope == asked.scope
                && known.write == asked.write
                && known.note == asked.note;
            if !same {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    "another token was issued under this operation id",
                ));
            }
            check_within(caller, &known)?;
            if known.expires <= self.clock.now() {
                return Err(Error::not_found("the token was issued before, and has expired since"));
            }
            let (secret, hash) = new_secret(known.id)?;
            let token = Token { hash, ..known };
            let mutation = Mutation::SetRecord {
                record: Box::new(Record::Token(token.clone())),
                expect: ExpectRecord::Version(revision),
            };
            // Use a new id, not the operation's: each repeat must get a secret of its own.
            let own = self.new_operation_id()?;
            match self.apply(caller, own, vec![mutation]).await?.pop() {
                Some(Outcome::Refused(Refusal::Stale)) => {}
                Some(Outcome::Refused(refusal)) => return Err(refused("the token", refusal)),
                _ => {
                    let token = Box::new(token_info(&self.registry.names(), &token));
                    return Ok(Answer::TokenIssued { token, secret });
                }
            }
        }
        Err(Error::new(ErrorKind::Conflict, "the same token is being issued many times at once"))
    }

    /// Refuses a token that is invalid, or not allowed for this caller.
    fn check_token(&self, caller: &Caller, token: &Token, lifetime_seconds: u64) -> Result<()> {
        if lifetime_seconds == 0 {
            return Err(Error::invalid("a token that lasts 0 seconds is never valid"));
        }
        let max = self.settings.token_seconds_max;
        if lifetime_seconds > max {
            let seconds = usize::try_from(lifetime_seconds).unwrap_or(usize::MAX);
            return Err(Error::limit("the lifetime of a token in seconds", seconds, max as usize));
        }
        if token.note.len() > TOKEN_NOTE_BYTES_MAX {
            return Err(Error::limit(
                "the length of a token's note in bytes",
                token.note.len(),
                TOKEN_NOTE_BYTES_MAX,
            ));
        }
        check_within(caller, token)
    }

    async fn check_token_count(&self, user: UserId) -> Result<()> {
        let now = self.clock.now();
        let tokens = self.tokens(|token| token.user == user && token.expires > now).await?;
        if tokens.len() >= TOKENS_PER_USER_MAX {
            return Err(Error::limit(
                "the number of a user's valid tokens",
                tokens.len() + 1,
                TOKENS_PER_USER_MAX,
            ));
        }
        Ok(())
    }

    pub(crate) async fn token_revoke(
        &self,
        caller: &Caller,
        id: OperationId,
        token: TokenId,
    ) -> Result<Answer> {
        let me = caller.check_known()?;
        let planned = match self.token(token).await? {
            Some(known) if known.user == me || caller.is_admin() => {
                if caller.token() != Some(token) {
                    caller.check_scope(&known.scope)?;
                }
                Ok(Mutation::DropRecord { key: RecordKey::Token(token), expect: ExpectRecord::Any })
            }
            // A caller must not learn the numbers of others' tokens.
            _ => Err(Error::not_found(format!("you have no token number {:016x}", token.0))),
        };
        let what = format!("the token {:016x}", token.0);
        let outcome = self.apply_planned(caller, id, what, planned).await?;
        Ok(Answer::Done { revision: self.revision_of(&outcome).await? })
    }

    pub(crate) async fn token_list(&self, caller: &Caller) -> Result<Answer> {
        let me = caller.check_known()?;
        let tokens = self.tokens(|token| token.user == me || caller.is_admin()).await?;
        let names = self.registry.names();
        Ok(Answer::Tokens(tokens.iter().map(|token| token_info(&names, token)).collect()))
    }

    /// Returns the tokens that `wanted` selects.
    pub(crate) async fn tokens(&self, wanted: impl Fn(&Token) -> bool) -> Result<Vec<Token>> {
        let mut tokens = Vec::new();
        let mut after = None;
        loop {
            let page = self.store.records(RecordKind::Token, after, PAGE_ITEMS_MAX).await?;
            after = page.items.last().map(|item| item.key);
            tokens.extend(page.items.into_iter().filter_map(|item| match item.record {
                Record::Token(token) if wanted(&token) => Some(token),
                _ => None,
            }));
            if !page.more || after.is_none() {
                return Ok(tokens);
            }
        }
    }
}

/// Refuses a token that allows more than the caller's own, or outlives it.
fn check_within(caller: &Caller, token: &Token) -> Result<()> {
    caller.check_scope(&token.scope)?;
    if token.write && !caller.may_write() {
        return Err(Error::denied("a token for reading only issues none for writing"));
    }
    match caller.expires() {
        Some(expires) if token.expires > expires => Err(Error::denied(format!(
            "a token issued with a token may not outlive it: yours expires at {expires}"
        ))),
        _ => Ok(()),
    }
}

fn token_info(names: &Names, token: &Token) -> TokenInfo {
    TokenInfo {
        id: token.id,
        user: names.user_name(token.user),
        issued: token.issued,
        expires: token.expires,
        scope: token.scope.clone(),
        write: token.write,
        note: token.note.clone(),
    }
}

/// Returns the number of the token that an operation issues.
fn token_number(id: OperationId) -> TokenId {
    let mut hash = Sha256::new();
    hash.update(b"token");
    hash.update(id.0);
    let digest = hash.finalize();
    let mut number = [0u8; 8];
    number.copy_from_slice(&digest[..8]);
    TokenId(u64::from_be_bytes(number))
}

/// Makes a new secret for a token, and its hash.
fn new_secret(id: TokenId) -> Result<(String, [u8; 32])> {
    let mut random = [0u8; SECRET_BYTES];
    fill_random(&mut random)?;
    let mut secret = format!("{PREFIX}{:016x}_", id.0);
    for byte in random {
        secret.push_str(&format!("{byte:02x}"));
    }
    let hash = Sha256::digest(secret.as_bytes()).into();
    Ok((secret, hash))
}

/// Returns the public number in a secret; none if it is no token of ours.
fn token_id(secret: &str) -> Option<TokenId> {
    let (number, random) = secret.strip_prefix(PREFIX)?.split_once('_')?;
    let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if number.len() != 16 || random.len() != 2 * SECRET_BYTES || !hex(number) || !hex(random) {
        return None;
    }
    u64::from_str_radix(number, 16).ok().map(TokenId)
}

/// Compares all bytes wherever the first difference is, so that the time reveals nothing.
fn same_hash(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let difference = a.iter().zip(b).fold(0u8, |sum, (a, b)| black_box(sum | (a ^ b)));
    black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_names_its_token_and_nothing_else_does() {
        let (secret, hash) = new_secret(TokenId(0xabc)).unwrap();
        assert_eq!(secret.len(), 4 + 16 + 1 + 64);
        assert_eq!(token_id(&secret), Some(TokenId(0xabc)));
        assert_eq!(<[u8; 32]>::from(Sha256::digest(secret.as_bytes())), hash);
        for bad in ["", "exa_", "exa_1_2", &secret[1..], &secret[..84], &secret.to_uppercase()] {
            assert_eq!(token_id(bad), None, "{bad}");
        }
    }

    #[test]
    fn hashes_are_compared_whole() {
        let a = [7u8; 32];
        assert!(same_hash(&a, &a.clone()));
        for place in 0..32 {
            let mut b = a;
            b[place] ^= 0x80;
            assert!(!same_hash(&a, &b), "{place}");
        }
    }
}

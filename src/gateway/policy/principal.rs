//! Who a statement is about.

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller<'a> {
    /// Somebody without a signature.
    Anonymous,
    /// The account of this name. Accounts have no users below them.
    Account(&'a str),
}

/// The value of a `Principal` or `NotPrincipal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Principals {
    /// `"*"`.
    Everybody,
    /// Names of accounts; others can never be met.
    Named(Vec<Name>),
}

/// One entry of a principal's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// `*`.
    Everybody,
    /// An account by its name.
    Account(String),
    /// An account by an ARN, which may stand in a policy without there being one.
    Arn(String),
    /// A service or an identity of another system, of which no request comes here.
    Foreign,
}

impl Name {
    /// Reads an entry below `AWS`: `*`, an account's name, or an ARN of IAM.
    ///
    /// As an account is its own only user, `arn:aws:iam::ann:root`, `arn:aws:iam::ann:user/ann` and
    /// `arn:aws:iam:::user/ann` are all the account `ann`.
    pub(super) fn aws(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Everybody);
        }
        let Some(rest) = text.strip_prefix("arn:") else {
            return (!text.is_empty()).then(|| Self::Account(text.to_owned()));
        };
        // <partition>:iam:<no region>:<account>:<resource>
        let mut fields = rest.splitn(5, ':');
        let (Some(_), Some(service), Some(_), Some(account), Some(resource)) =
            (fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return None;
        };
        if !matches!(service, "iam" | "sts") || resource.contains('*') {
            return None;
        }
        let user = resource.strip_prefix("user/").map(|path| path.rsplit('/').next().unwrap_or(path));
        Some(match (resource, user) {
            ("root", _) if !account.is_empty() => Self::Arn(account.to_owned()),
            ("root", _) => return None,
            (_, Some("")) => return None,
            (_, Some(user)) if account.is_empty() || account == user => Self::Arn(user.to_owned()),
            // A user or role of an account that has none here.
            _ => Self::Foreign,
        })
    }

    fn is(&self, caller: Caller<'_>) -> bool {
        match self {
            Self::Everybody => true,
            Self::Account(name) | Self::Arn(name) => caller == Caller::Account(name),
            Self::Foreign => false,
        }
    }
}

impl Principals {
    /// Whether the caller is among them.
    pub(super) fn include(&self, caller: Caller<'_>) -> bool {
        match self {
            Self::Everybody => true,
            Self::Named(names) => names.iter().any(|name| name.is(caller)),
        }
    }

    /// Whether they are not a fixed set.
    pub(super) fn include_everybody(&self) -> bool {
        match self {
            Self::Everybody => true,
            Self::Named(names) => names.contains(&Name::Everybody),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("*" => Some(Name::Everybody))]
    #[test_case("ann" => Some(Name::Account("ann".into())))]
    #[test_case("123456789012" => Some(Name::Account("123456789012".into())))]
    #[test_case("arn:aws:iam::ann:root" => Some(Name::Arn("ann".into())))]
    #[test_case("arn:aws:iam:::user/ann" => Some(Name::Arn("ann".into())))]
    #[test_case("arn:aws:iam::ann:user/ann" => Some(Name::Arn("ann".into())))]
    #[test_case("arn:aws:iam::bob:user/ann" => Some(Name::Foreign); "a user of somebody else")]
    #[test_case("arn:aws:iam::bob:role/x" => Some(Name::Foreign))]
    #[test_case("arn:aws:iam:::root" => None)]
    #[test_case("arn:aws:s3:::bucket" => None)]
    #[test_case("arn:aws:iam::ann:user/*" => None)]
    #[test_case("arn:nonsense" => None)]
    #[test_case("" => None)]
    fn names(text: &str) -> Option<Name> {
        Name::aws(text)
    }

    #[test]
    fn anonymous_is_nobody_but_everybody() {
        let named = Principals::Named(vec![Name::Arn("ann".into()), Name::Foreign]);
        assert!(!named.include(Caller::Anonymous) && named.include(Caller::Account("ann")));
        assert!(!named.include(Caller::Account("bob")) && !named.include_everybody());
        let star = Principals::Named(vec![Name::Everybody]);
        assert!(star.include(Caller::Anonymous) && star.include_everybody());
    }
}

//! One rule of a policy.

use super::actions;
use super::condition::Condition;
use super::document::{Malformed, Question, malformed};
use super::json::Json;
use super::pattern::{Pattern, Wildcards};
use super::principal::{Name, Principals};

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Allow,
    Deny,
}

/// `Principal` or `NotPrincipal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Are(Principals),
    AreNot(Principals),
}

/// `Action` or `NotAction`, `Resource` or `NotResource`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Which {
    pub(super) patterns: Vec<Pattern>,
    negated: bool,
}

impl Which {
    fn takes(&self, matches: impl Fn(&Pattern) -> bool) -> bool {
        self.patterns.iter().any(matches) != self.negated
    }
}

/// One rule of a policy.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) effect: Effect,
    pub(super) who: Who,
    action: Which,
    pub(super) resource: Which,
    pub(super) conditions: Vec<Condition>,
    /// What in it cannot be judged here. Such a statement allows nothing, and denies as if its
    /// unknown conditions were met.
    pub(super) doubts: Vec<String>,
}

impl Statement {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn new(json: &Json, variables: bool) -> Result<Self, Malformed> {
        let Json::Object(members) = json else { return malformed("A statement must be a JSON object") };
        let (mut effect, mut who, mut action, mut resource) = (None, None, None, None);
        let (mut conditions, mut doubts) = (Vec::new(), Vec::new());
        let twice = |name: &str| malformed(format!("Statement has more than one of {name} and Not{name}"));
        for (name, value) in members {
            let negated = name.starts_with("Not");
            match name.as_str() {
                "Sid" => {}
                "Effect" => {
                    effect = Some(match value {
                        Json::Text(text) if text == "Allow" => Effect::Allow,
                        Json::Text(text) if text == "Deny" => Effect::Deny,
                        Json::Text(text) => return malformed(format!("Invalid effect: {text}")),
                        _ => return malformed("Invalid effect"),
                    });
                }
                "Principal" | "NotPrincipal" => {
                    let found = principals(value, &mut doubts)?;
                    let rule = if negated { Who::AreNot(found) } else { Who::Are(found) };
                    if who.replace(rule).is_some() {
                        return twice("Principal");
                    }
                }
                "Action" | "NotAction" => {
                    if action.replace(Which { patterns: action_patterns(value)?, negated }).is_some() {
                        return twice("Action");
                    }
                }
                "Resource" | "NotResource" => {
                    let patterns = resource_patterns(value, variables)?;
                    if resource.replace(Which { patterns, negated }).is_some() {
                        return twice("Resource");
                    }
                }
                "Condition" => conditions = read_conditions(value, variables, &mut doubts)?,
                name => return malformed(format!("Statement has an invalid element {name:?}")),
            }
        }
        let missing = |name: &str| Malformed::new(format!("Missing required field {name}"));
        let effect = effect.ok_or_else(|| missing("Effect"))?;
        let who = who.ok_or_else(|| missing("Principal"))?;
        if effect == Effect::Allow && matches!(who, Who::AreNot(_)) {
            doubts.push("Allow with NotPrincipal is not allowed".to_owned());
        }
        Ok(Self {
            effect,
            who,
            action: action.ok_or_else(|| missing("Action"))?,
            resource: resource.ok_or_else(|| missing("Resource"))?,
            conditions,
            doubts,
        })
    }

    /// Whether it is about a request.
    pub(super) fn applies(&self, question: &Question<'_>) -> bool {
        if self.effect == Effect::Allow && !self.doubts.is_empty() {
            return false;
        }
        let Question { caller, action, resource, values } = *question;
        let who = match &self.who {
            Who::Are(principals) => principals.include(caller),
            Who::AreNot(principals) => !principals.include(caller),
        };
        who && self.action.takes(|pattern| pattern.matches_ignoring_case(action, values))
            && self.resource.takes(|pattern| pattern.matches(resource, values))
            && self.conditions.iter().all(|condition| condition.is_met(values))
    }
}

fn principals(value: &Json, doubts: &mut Vec<String>) -> Result<Principals, Malformed> {
    let invalid = |text: &str| Malformed::new(format!("Invalid principal in policy: {text:?}"));
    let members = match value {
        Json::Text(text) if text == "*" => return Ok(Principals::Everybody),
        Json::Object(members) if !members.is_empty() => members,
        _ => return malformed("Invalid principal in policy"),
    };
    let mut names = Vec::new();
    for (kind, value) in members {
        let texts = value.texts().filter(|t| !t.is_empty()).ok_or_else(|| invalid(kind))?;
        for text in texts {
            match kind.as_str() {
                "AWS" => names.push(Name::aws(text).ok_or_else(|| invalid(text))?),
                "CanonicalUser" if !text.is_empty() => names.push(Name::Account(text.to_owned())),
                "Service" | "Federated" => names.push(Name::Foreign),
                _ => {
                    doubts.push(invalid(kind).to_string());
                    names.push(Name::Foreign);
                }
            }
        }
    }
    Ok(Principals::Named(names))
}

fn action_patterns(value: &Json) -> Result<Vec<Pattern>, Malformed> {
    let texts = value.texts().filter(|t| !t.is_empty());
    let Some(texts) = texts else { return malformed("Policy has invalid action") };
    if let Some(text) = texts.iter().find(|text| !actions::is_valid(text)) {
        return malformed(format!("Policy has invalid action {text:?}"));
    }
    Ok(texts.iter().map(|text| Pattern::new(text, Wildcards::Match, false)).collect())
}

fn resource_patterns(value: &Json, variables: bool) -> Result<Vec<Pattern>, Malformed> {
    let texts = value.texts().filter(|t| !t.is_empty());
    let Some(texts) = texts else { return malformed("Policy has invalid resource") };
    if let Some(text) = texts.iter().find(|text| !(**text == "*" || text.starts_with("arn:aws:s3:::"))) {
        return malformed(format!("Policy has invalid resource {text:?}"));
    }
    Ok(texts.iter().map(|text| Pattern::new(text, Wildcards::Match, variables)).collect())
}

fn read_conditions(
    value: &Json,
    variables: bool,
    doubts: &mut Vec<String>,
) -> Result<Vec<Condition>, Malformed> {
    let Json::Object(operators) = value else { return malformed("Condition must be a JSON object") };
    let mut conditions = Vec::new();
    for (operator, keys) in operators {
        let Json::Object(keys) = keys else {
            return malformed(format!("The condition operator {operator:?} must hold a JSON object"));
        };
        for (key, value) in keys {
            let Some(texts) = value.texts() else {
                return malformed(format!("The condition key {key:?} must have texts as values"));
            };
            match Condition::new(operator, key, &texts, variables) {
                Ok(condition) => conditions.push(condition),
                Err(doubt) => doubts.push(doubt),
            }
        }
    }
    Ok(conditions)
}

package crds

import (
	"maps"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/seed"
)

// refusal is an object that is not admitted: a full one, but for a merge patch.
type refusal struct {
	patch string
	field string // that the error names; "" is the whole object
	want  string // in the error
}

const (
	noVersion   = "a kind must be written without its version, such as Deployment.apps"
	noMatch     = "should match '"
	unsupported = "Unsupported value"
	ofSource    = "commit must be set for a PolicySource, and must not be set for a FleetPolicy"
	everybody   = "a group of everybody, or of all service accounts, restricts nothing: omit it"
	noAccount   = "a service account must be written as system:serviceaccount:<namespace>:<name>"
)

func refusals() map[string][]refusal {
	return map[string][]refusal{
		v1alpha1.FleetPolicies: {
			{"metadata: {name: " + strings.Repeat("a", 64) + "}", "", "metadata.name must be at most 63 characters: it is used as a label value of Actions"},
			{`spec: {package: fleet}`, "spec.package", "package fleet is reserved: data.fleet holds the documents of the fleet"},
			{`spec: {package: fleet.views}`, "spec.package", "package fleet is reserved: data.fleet holds the documents of the fleet"},
			{`spec: {package: a-b}`, "spec.package", noMatch},
			{`spec: {package: null}`, "spec.package", "Required value"},
			{`spec: {rollout: {shadow: 721h}}`, "spec.rollout.shadow", "shadow must be at most 720h"},
			{`spec: {rollout: {shadow: 1d}}`, "spec.rollout.shadow", noMatch},
			{`spec: {rollout: {maxNew: 101%}}`, "spec.rollout.maxNew", "maxNew must be a number or a percentage such as 5%"},
			{`spec: {rollout: {maxNew: -1}}`, "spec.rollout.maxNew", "maxNew must be a number or a percentage such as 5%"},
			{`spec: {rollout: {maxErrors: many}}`, "spec.rollout.maxErrors", "maxErrors must be a number or a percentage such as 5%"},
			{`spec: {rollout: {maxCost: "200"}}`, "spec.rollout.maxCost", noMatch},
			{`spec: {source: A}`, "spec.source", noMatch},
			{`spec: {notifications: ["*"]}`, "spec.notifications[0]", noMatch},
			{`spec: {notifications: [a.b]}`, "spec.notifications[0]", noMatch},
			{`spec: {notifications: [` + strings.Repeat("a", 64) + `]}`, "spec.notifications[0]", "Too long"},
			{`spec: {notifications: [a, a]}`, "spec.notifications[1]", "Duplicate value"},
			{`spec: {notifications: [` + strings.Repeat("a, ", 20) + `b]}`, "spec.notifications", "must have at most 20 items"},
			{`spec: {parameters: [1]}`, "spec.parameters", "must be of type object"},
			{`spec: {members: {names: [eu-1]}}`, "spec.members.names[0]", noMatch},
			{`spec: {members: {names: ["a/["]}}`, "spec.members.names[0]", noMatch},
			{`spec: {members: {names: [a/b, a/b]}}`, "spec.members.names[1]", "Duplicate value"},
			{`spec: {members: {labels: {matchExpressions: [{key: a, operator: In}]}}}`, "spec.members.labels.matchExpressions[0]", "values must be set if operator is In or NotIn, and must not be set if it is Exists or DoesNotExist"},
			{`spec: {match: {labels: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}}`, "spec.match.labels.matchExpressions[0]", "values must be set if operator is In or NotIn, and must not be set if it is Exists or DoesNotExist"},
			{`spec: {match: {labels: {matchExpressions: [{key: "a b", operator: Exists}]}}}`, "spec.match.labels.matchExpressions[0].key", noMatch},
			{`spec: {match: {labels: {matchLabels: {a: "b c"}}}}`, "spec.match.labels.matchLabels.a", noMatch},
			{`spec: {match: {kinds: [Deployment.v1.apps]}}`, "spec.match.kinds[0]", noVersion},
			{`spec: {match: {kinds: [Pod.v1]}}`, "spec.match.kinds[0]", noVersion},
			{`spec: {match: {kinds: [pods/log]}}`, "spec.match.kinds[0]", noMatch},
			{`spec: {match: {namespaces: ["[b-]"]}}`, "spec.match.namespaces[0]", noMatch},
			{`spec: {unknown: {mode: Strict}}`, "spec.unknown", "members may be set only if mode is Tolerate"},
			{`spec: {unknown: {mode: null}}`, "spec.unknown", "members may be set only if mode is Tolerate"},
			{`spec: {exemptions: [{reason: a}]}`, "spec.exemptions[0]", "an exemption must set members, namespaces, names or labels"},
			{`spec: {exemptions: [{reason: a, members: {}, namespaces: [], names: []}]}`, "spec.exemptions[0]", "an exemption must set members, namespaces, names or labels"},
			{`spec: {exemptions: [{reason: a, members: {names: [], labels: {matchLabels: {}}}, labels: {}}]}`, "spec.exemptions[0]", "an exemption must set members, namespaces, names or labels"},
			{`spec: {exemptions: [{reason: " ", names: [a]}]}`, "spec.exemptions[0].reason", "reason must not be blank"},
			{`spec: {exemptions: [{names: [a]}]}`, "spec.exemptions[0].reason", "Required value"},
			{`spec: {exemptions: [{reason: a, names: ['a[']}]}`, "spec.exemptions[0].names[0]", noMatch},
			{`spec: {exemptions: [{reason: a, names: ['a\']}]}`, "spec.exemptions[0].names[0]", noMatch},
			{`spec: {limits: {window: 59s}}`, "spec.limits.window", "window must be between 1m and 720h"},
			{`spec: {limits: {window: 721h}}`, "spec.limits.window", "window must be between 1m and 720h"},
			{`spec: {limits: {maxAffected: {member: {count: null}}}}`, "spec.limits.maxAffected.member", "a limit must set count, percent or both"},
			{`spec: {limits: {maxAffected: {policy: {count: 0}}}}`, "spec.limits.maxAffected.policy.count", "greater than or equal to 1"},
			{`spec: {limits: {maxAffected: {policy: {percent: 101}}}}`, "spec.limits.maxAffected.policy.percent", "less than or equal to 100"},
			{`spec: {limits: {maxAffected: {policy: {percent: 0.5}}}}`, "spec.limits.maxAffected.policy.percent", "must be of type integer"},
			{`spec: {limits: {actionsPerMinute: 0}}`, "spec.limits.actionsPerMinute", "greater than or equal to 1"},
			{`spec: {waves: [{name: a}, {name: a}]}`, "spec.waves[1]", "Duplicate value"},
			{`spec: {waves: [{name: a, soak: 721h}]}`, "spec.waves[0].soak", "soak must be at most 720h"},
			{`spec: {waves: [{name: a, soak: -1h}]}`, "spec.waves[0].soak", noMatch},
			{`spec: {waves: [{name: a, health: {timeout: 0s}}]}`, "spec.waves[0].health.timeout", "timeout must be between 1s and 24h"},
			{`spec: {window: {schedule: "@daily"}}`, "spec.window.schedule", "schedule must have five fields: minute, hour, day of month, month and day of week, such as '0 2 * * MON-FRI'"},
			{`spec: {window: {schedule: "60 * * * *"}}`, "spec.window.schedule", "the minute must be 0-59"},
			{`spec: {window: {schedule: "* 24 * * *"}}`, "spec.window.schedule", "the hour must be 0-23"},
			{`spec: {window: {schedule: "* * 0 * *"}}`, "spec.window.schedule", "the day of the month must be 1-31"},
			{`spec: {window: {schedule: "* * * FOO *"}}`, "spec.window.schedule", "the month must be 1-12 or JAN-DEC"},
			{`spec: {window: {schedule: "* * * * 7"}}`, "spec.window.schedule", "the day of the week must be 0-6, where 0 is Sunday, or SUN-SAT"},
			{`spec: {window: {duration: 30s}}`, "spec.window.duration", "duration must be between 1m and 168h"},
			{`spec: {window: {duration: 169h}}`, "spec.window.duration", "duration must be between 1m and 168h"},
			{`spec: {window: {timeZone: Local}}`, "spec.window.timeZone", "timeZone must be a name from the IANA time zone database, such as Europe/Berlin"},
			{`spec: {window: {timeZone: ../etc}}`, "spec.window.timeZone", "timeZone must be a name from the IANA time zone database, such as Europe/Berlin"},
			{`spec: {window: {timeZone: Mars/Olympus}}`, "spec.window.timeZone", "unknown time zone Mars/Olympus"},
			{`spec: {actAs: "system:admin"}`, "spec.actAs", "the only system: users that can be impersonated are service accounts: system:serviceaccount:<namespace>:<name>"},
			{`spec: {actAs: "system:serviceaccount:a"}`, "spec.actAs", "the only system: users that can be impersonated are service accounts: system:serviceaccount:<namespace>:<name>"},
			{`spec: {limits: {maxReversions: 1}}`, "spec.limits.maxReversions", "greater than or equal to 2"},
			{`spec: {waves: [{name: a, health: {maxFailed: 101}}]}`, "spec.waves[0].health.maxFailed", "less than or equal to 100"},
			{`spec: {waves: [{name: a, effect: {}}]}`, "spec.waves[0].effect", "effect must set policies, or unknown to true"},
			{`spec: {waves: [{name: a, effect: {policies: [], unknown: false}}]}`, "spec.waves[0].effect", "effect must set policies, or unknown to true"},
			{`spec: {waves: [{name: a, effect: {policies: [A]}}]}`, "spec.waves[0].effect.policies[0]", noMatch},
			{`spec: {approval: {required: 0}}`, "spec.approval.required", "greater than or equal to 1"},
			{`spec: {approval: {groups: ["system:authenticated"]}}`, "spec.approval.groups[0]", everybody},
			{`spec: {approval: {groups: ["system:serviceaccounts"]}}`, "spec.approval.groups[0]", everybody},
			{`spec: {approval: {serviceAccounts: [approver]}}`, "spec.approval.serviceAccounts[0]", noAccount},
			{`spec: {approval: {above: 0}}`, "spec.approval.above", "greater than or equal to 1"},
			{`spec: {approval: {validFor: 721h}}`, "spec.approval.validFor", "validFor must be between 1m and 720h"},
			{`spec: {nonsense: true}`, "", `unknown field "spec.nonsense"`},
		},
		v1alpha1.PolicySources: {
			{`metadata: {name: a.b}`, "", "metadata.name must be a DNS label: at most 63 characters of a-z, 0-9 and -"},
			{`spec: {secretRef: null}`, "spec", "secretRef must be set if url uses SSH: a Secret with identity and known_hosts"},
			{`spec: {secretRef: null, url: "git@git.example:a/b"}`, "spec", "secretRef must be set if url uses SSH: a Secret with identity and known_hosts"},
			{`spec: {url: "https://jane:secret@git.example/a"}`, "spec.url", "url must not contain credentials: use secretRef"},
			{`spec: {url: "https://token@git.example/a"}`, "spec.url", "url must not contain credentials: use secretRef"},
			{`spec: {url: "ssh://git:secret@git.example/a"}`, "spec.url", "url must not contain credentials: use secretRef"},
			{`spec: {url: "http://git.example/a"}`, "spec.url", "http and git URLs are not supported because they are neither private nor authenticated: use https or ssh"},
			{`spec: {url: "git://git.example/a"}`, "spec.url", "http and git URLs are not supported because they are neither private nor authenticated: use https or ssh"},
			{`spec: {url: "git.example/a"}`, "spec.url", "url must be https://host/path, ssh://user@host/path, user@host:path or file:///path"},
			{`spec: {url: "ext::sh -c id"}`, "spec.url", "url must be https://host/path, ssh://user@host/path, user@host:path or file:///path"},
			{`spec: {url: "https://git.example/a?b=c"}`, "spec.url", "url must be https://host/path, ssh://user@host/path, user@host:path or file:///path"},
			{`spec: {external: [{name: a}]}`, "spec.external[0]", "exactly one of file, configMap and https must be set"},
			{`spec: {external: [{name: a, file: x, configMap: {name: a, key: b}}]}`, "spec.external[0]", "exactly one of file, configMap and https must be set"},
			{`spec: {external: [{name: a, file: x}, {name: a, file: y}]}`, "spec.external[1]", "Duplicate value"},
			{`spec: {external: [{name: "a/b", file: x}]}`, "spec.external[0].name", noMatch},
			{`spec: {external: [{name: a, file: ../x}]}`, "spec.external[0].file", "file must be a path relative to spec.path, without '.', '..' or backslashes"},
			{`spec: {external: [{name: a, file: /x}]}`, "spec.external[0].file", "file must be a path relative to spec.path, without '.', '..' or backslashes"},
			{`spec: {external: [{name: a, file: x, maxAge: 9s}]}`, "spec.external[0].maxAge", "maxAge must be between 10s and 8760h"},
			{`spec: {external: [{name: a, file: x, maxAge: soon}]}`, "spec.external[0].maxAge", noMatch},
			{`spec: {external: [{name: a, file: x, maxBytes: 5000000}]}`, "spec.external[0].maxBytes", "less than or equal to 4194304"},
			{`spec: {external: [{name: a, configMap: {name: A, key: b}}]}`, "spec.external[0].configMap.name", noMatch},
			{`spec: {external: [{name: a, configMap: {name: a, key: "b c"}}]}`, "spec.external[0].configMap.key", noMatch},
			{`spec: {external: [{name: a, https: {url: "http://a/b"}}]}`, "spec.external[0].https.url", "url must be https://host/path, without credentials"},
			{`spec: {external: [{name: a, https: {url: "https://jane@a/b"}}]}`, "spec.external[0].https.url", "url must be https://host/path, without credentials"},
			{`spec: {external: [{name: a, https: {url: "https://a/", interval: 9s}}]}`, "spec.external[0].https.interval", "interval must be between 10s and 24h"},
			{`spec: {external: [{name: a, https: {url: "https://a/", secretRef: {name: A}}}]}`, "spec.external[0].https.secretRef.name", noMatch},
			{`spec: {ref: {branch: null}}`, "spec.ref", "exactly one of branch, tag, commit and name must be set"},
			{`spec: {ref: {tag: v1}}`, "spec.ref", "exactly one of branch, tag, commit and name must be set"},
			{`spec: {ref: {branch: "a..b"}}`, "spec.ref.branch", "invalid branch name: see git-check-ref-format(1)"},
			{`spec: {ref: {branch: "-a"}}`, "spec.ref.branch", "invalid branch name: see git-check-ref-format(1)"},
			{`spec: {ref: {branch: "a b"}}`, "spec.ref.branch", "invalid branch name: see git-check-ref-format(1)"},
			{`spec: {ref: {branch: 'a\b'}}`, "spec.ref.branch", "invalid branch name: see git-check-ref-format(1)"},
			{`spec: {ref: {branch: 'a[b'}}`, "spec.ref.branch", "invalid branch name: see git-check-ref-format(1)"},
			{`spec: {ref: {branch: null, tag: "v1.lock"}}`, "spec.ref.tag", "invalid tag name: see git-check-ref-format(1)"},
			{`spec: {ref: {branch: null, commit: abc}}`, "spec.ref.commit", noMatch},
			{`spec: {ref: {branch: null, name: main}}`, "spec.ref.name", "name must be a full ref name, starting with refs/"},
			{`spec: {path: /a}`, "spec.path", "path must be relative to the root of the repository and must not contain '..' or backslashes"},
			{`spec: {path: a/../../b}`, "spec.path", "path must be relative to the root of the repository and must not contain '..' or backslashes"},
			{`spec: {path: 'a\b'}`, "spec.path", "path must be relative to the root of the repository and must not contain '..' or backslashes"},
			{`spec: {interval: 9s}`, "spec.interval", "interval must be between 10s and 24h"},
			{`spec: {timeout: 11m}`, "spec.timeout", "timeout must be between 1s and 10m"},
			{`spec: {secretRef: {namespace: null}}`, "spec.secretRef.namespace", "Required value"},
			{`spec: {verification: {secretRef: null}}`, "spec.verification.secretRef", "Required value"},
			{`spec: {ceiling: {notifications: ["a*"]}}`, "spec.ceiling.notifications[0]", noMatch},
			{`spec: {ceiling: {notifications: [a, a]}}`, "spec.ceiling.notifications[1]", "Duplicate value"},
			{`spec: {ceiling: {notifications: [` + strings.Repeat("a, ", 50) + `b]}}`, "spec.ceiling.notifications", "must have at most 50 items"},
			{`spec: {ceiling: {actions: null}}`, "spec.ceiling", "actions must be set if maxMode is DryRun or Enforce"},
			{`spec: {ceiling: {maxMode: DryRun, actions: []}}`, "spec.ceiling", "actions must be set if maxMode is DryRun or Enforce"},
			{`spec: {ceiling: {actions: [{verbs: [], kinds: [Pod]}]}}`, "spec.ceiling.actions[0].verbs", "at least 1 items"},
			{`spec: {ceiling: {actions: [{verbs: [patch], kinds: [Pod, "*"]}]}}`, "spec.ceiling.actions[0].kinds", "'*' must be the only item: it matches all kinds"},
			{`spec: {ceiling: {actions: [{verbs: [patch], kinds: [Pod.v1]}]}}`, "spec.ceiling.actions[0].kinds[0]", noVersion},
			{`spec: {ceiling: {members: {labels: {matchExpressions: [{key: a, operator: NotIn, values: []}]}}}}`, "spec.ceiling.members.labels.matchExpressions[0]", "values must be set if operator is In or NotIn, and must not be set if it is Exists or DoesNotExist"},
			{`spec: {ceiling: {limits: {policy: null, member: null, fleet: null, actionsPerMinute: null}}}`, "spec.ceiling.limits", "limits must set policy, member, fleet or actionsPerMinute"},
			{`spec: {ceiling: {limits: {window: 30s}}}`, "spec.ceiling.limits.window", "window must be between 1m and 720h"},
			{`spec: {ceiling: {limits: {member: {count: null, percent: null}}}}`, "spec.ceiling.limits.member", "a limit must set count, percent or both"},
			{`spec: {ceiling: {waves: [{name: a}, {name: a}]}}`, "spec.ceiling.waves[1]", "Duplicate value"},
			{`spec: {ceiling: {waves: [{name: a, soak: 721h}]}}`, "spec.ceiling.waves[0].soak", "soak must be at most 720h"},
			{`spec: {ceiling: {waves: [{name: a, health: {timeout: 0s}}]}}`, "spec.ceiling.waves[0].health.timeout", "timeout must be between 1s and 24h"},
			{`spec: {ceiling: {waves: [{name: a, effect: {}}]}}`, "spec.ceiling.waves[0].effect", "effect must set policies, or unknown to true"},
			{`spec: {ceiling: {window: {schedule: "@daily"}}}`, "spec.ceiling.window.schedule", "schedule must have five fields: minute, hour, day of month, month and day of week, such as '0 2 * * MON-FRI'"},
			{`spec: {ceiling: {window: {schedule: "60 * * * *"}}}`, "spec.ceiling.window.schedule", "the minute must be 0-59"},
			{`spec: {ceiling: {window: {schedule: "* 24 * * *"}}}`, "spec.ceiling.window.schedule", "the hour must be 0-23"},
			{`spec: {ceiling: {window: {schedule: "* * 0 * *"}}}`, "spec.ceiling.window.schedule", "the day of the month must be 1-31"},
			{`spec: {ceiling: {window: {schedule: "* * * FOO *"}}}`, "spec.ceiling.window.schedule", "the month must be 1-12 or JAN-DEC"},
			{`spec: {ceiling: {window: {schedule: "* * * * 7"}}}`, "spec.ceiling.window.schedule", "the day of the week must be 0-6, where 0 is Sunday, or SUN-SAT"},
			{`spec: {ceiling: {window: {duration: 30s}}}`, "spec.ceiling.window.duration", "duration must be between 1m and 168h"},
			{`spec: {ceiling: {window: {timeZone: Local}}}`, "spec.ceiling.window.timeZone", "timeZone must be a name from the IANA time zone database, such as Europe/Berlin"},
			{`spec: {ceiling: {approval: {groups: ["system:authenticated"]}}}`, "spec.ceiling.approval.groups[0]", everybody},
			{`spec: {ceiling: {approval: {serviceAccounts: [approver]}}}`, "spec.ceiling.approval.serviceAccounts[0]", noAccount},
			{`spec: {ceiling: {approval: {validFor: 30s}}}`, "spec.ceiling.approval.validFor", "validFor must be between 1m and 720h"},
			{`spec: {ceiling: {actAs: ["system:admin"]}}`, "spec.ceiling.actAs[0]", "the only system: users that can be impersonated are service accounts: system:serviceaccount:<namespace>:<name>"},
			{`spec: {maxDiff: 0}`, "spec.maxDiff", "greater than or equal to 1"},
			{`spec: {rollout: {shadow: 721h}}`, "spec.rollout.shadow", "shadow must be at most 720h"},
			{`spec: {rollout: {shadow: 1d}}`, "spec.rollout.shadow", noMatch},
			{`spec: {rollout: {maxNew: 101%}}`, "spec.rollout.maxNew", "maxNew must be a number or a percentage such as 5%"},
			{`spec: {rollout: {maxNew: -1}}`, "spec.rollout.maxNew", "maxNew must be a number or a percentage such as 5%"},
			{`spec: {rollout: {maxErrors: many}}`, "spec.rollout.maxErrors", "maxErrors must be a number or a percentage such as 5%"},
			{`spec: {rollout: {maxCost: "200"}}`, "spec.rollout.maxCost", noMatch},
			{`spec: {maxPrune: -1}`, "spec.maxPrune", "greater than or equal to 0"},
		},
		v1alpha1.Actions: {
			{`spec: {target: {kind: Secret}, patch: '[{"op":"replace","path":"/data/a","value":"eA=="}]'}`, "", "values of Secrets and ConfigMaps must not be recorded: omit patch and set patchHash only"},
			{`spec: {target: {kind: Secret}, patchType: Merge, patch: '{"stringData":{"a":"x"}}'}`, "", "values of Secrets and ConfigMaps must not be recorded: omit patch and set patchHash only"},
			{`{spec: {target: {kind: Secret}}, inverse: {patch: '{"data":{"a":"eA=="}}'}}`, "", "values of Secrets and ConfigMaps must not be recorded: omit patch and set patchHash only"},
			{`spec: {target: {kind: ConfigMap}, valuesKept: null, patchType: Merge, patch: '{"binaryData":{"a":"x"}}'}`, "", "values of Secrets and ConfigMaps must not be recorded: omit patch and set patchHash only"},
			{`{spec: {target: {kind: ConfigMap}, valuesKept: null}, inverse: {patch: '{"data":{"a":"x"}}'}}`, "", "values of Secrets and ConfigMaps must not be recorded: omit patch and set patchHash only"},
			{`spec: {verb: delete, patchType: null}`, "spec", "patchHash must be set if verb is apply or patch; patch and patchHash must not be set if verb is delete"},
			{`spec: {patchHash: null}`, "spec", "patchHash must be set if verb is apply or patch; patch and patchHash must not be set if verb is delete"},
			{`spec: {patchHash: abc}`, "spec.patchHash", noMatch},
			{`spec: {patch: null}`, "spec", "patch must be set if verb is apply or patch; it may be omitted only for a Secret or a ConfigMap"},
			{`spec: {patchType: null}`, "spec", "patchType must be set if verb is patch, and must not be set otherwise"},
			{`spec: {verb: apply}`, "spec", "patchType must be set if verb is patch, and must not be set otherwise"},
			{`spec: {propagationPolicy: Orphan}`, "spec", "propagationPolicy may be set only if verb is delete"},
			{`spec: {target: {uid: null, resourceVersion: null}}`, "spec", "target.uid and target.resourceVersion must be set if verb is patch or delete"},
			{`spec: {target: {uid: null}}`, "spec.target", "uid and resourceVersion must be set together; neither is set if the target does not exist yet"},
			{`spec: {target: {resourceVersion: null}}`, "spec.target", "uid and resourceVersion must be set together; neither is set if the target does not exist yet"},
			{`spec: {target: {kind: Pod.v1}}`, "spec.target.kind", noVersion},
			{`spec: {target: {member: eu-1}}`, "spec.target.member", noMatch},
			{`spec: {revision: r1}`, "spec.revision", noMatch},
			{`spec: {binding: null}`, "spec.binding", "Required value"},
			{`spec: {traceID: 0AF7651916CD43DD8448EB211C80319C}`, "spec.traceID", noMatch},
			{`spec: {auditID: "a b"}`, "spec.auditID", noMatch},
			{`inverse: {irreversible: no}`, "inverse.irreversible", "must be of type string"},
			{`inverse: {irreversible: "no"}`, "inverse", "exactly one of verb and irreversible must be set"},
			{`inverse: {verb: null, patch: null}`, "inverse", "exactly one of verb and irreversible must be set"},
			{`inverse: {verb: delete}`, "inverse", "patch must be set if verb is apply or patch, and must not be set otherwise"},
			{`inverse: {patch: null}`, "inverse", "patch must be set if verb is apply or patch, and must not be set otherwise"},
		},
		v1alpha1.Plans: {
			{`metadata: {name: another}`, "", "metadata.name must be the name of the policy, a dash and the first 16 characters of spec.hash"},
			{`spec: {policy: A}`, "spec.policy", noMatch},
			{`spec: {purpose: Generation}`, "spec", "halt must be set if purpose is Halt, and must not be set otherwise"},
			{`spec: {halt: null}`, "spec", "halt must be set if purpose is Halt, and must not be set otherwise"},
			{`spec: {purpose: Amendment, halt: null}`, "spec", "amends must be set if purpose is Amendment, and must not be set otherwise"},
			{`spec: {amends: another}`, "spec", "amends must be set if purpose is Amendment, and must not be set otherwise"},
			{`spec: {purpose: Rollback, halt: null}`, "spec", "rollback must be set if purpose is Rollback, and must not be set otherwise"},
			{`spec: {rollback: {since: "2026-11-21T11:00:00Z"}}`, "spec", "rollback must be set if purpose is Rollback, and must not be set otherwise"},
			{`spec: {purpose: Rollback, halt: null, rollback: {until: "2026-11-21T11:00:00Z"}}`, "spec.rollback", "commit or since must be set"},
			{`spec: {generation: abc}`, "spec.generation", noMatch},
			{`spec: {digests: {targets: null}}`, "spec.digests.targets", "Required value"},
			{`spec: {targets: 100001}`, "spec.targets", "less than or equal to 100000"},
		},
		v1alpha1.PlanParts: {
			{`spec: {targets: null}`, "spec.targets", "Required value"},
			{`spec: {targets: "` + strings.Repeat("a", v1alpha1.MaxPlanPartBytes) + `"}`, "spec.targets", "may not be more than 520192"},
		},
		v1alpha1.Approvals: {
			{`spec: {fleetPolicy: null}`, "spec", "exactly one of fleetPolicy and policySource must be set"},
			{`spec: {policySource: platform}`, "spec", "exactly one of fleetPolicy and policySource must be set"},
			{`spec: {plan: null}`, "spec", "exactly one of halt, plan, rollback, commit and version must be set"},
			{`spec: {version: ` + strings.Repeat("e", 64) + `}`, "spec", "exactly one of halt, plan, rollback, commit and version must be set"},
			{`spec: {plan: null, version: abc}`, "spec.version", noMatch},
			{`spec: {halt: 7f3c}`, "spec", "exactly one of halt, plan, rollback, commit and version must be set"},
			{`spec: {plan: null, commit: 0123456789abcdef0123456789abcdef01234567}`, "spec", ofSource},
			{`spec: {fleetPolicy: null, policySource: platform}`, "spec", ofSource},
			{`spec: {plan: 9f86d081884c7d65}`, "spec.plan", noMatch},
			{`spec: {reason: " "}`, "spec.reason", "reason must not be blank"},
			{`spec: {reason: null}`, "spec.reason", "Required value"},
			{`spec: {expires: null}`, "spec.expires", "Required value"},
			{`spec: {expires: tomorrow}`, "spec.expires", noMatch},
			{`spec: {by: null}`, "spec.by", "Required value"},
			{`spec: {by: ""}`, "spec.by", "at least 1 chars"},
			{`spec: {groups: ["system:authenticated"]}`, "spec.groups[0]", everybody},
		},
		v1alpha1.Rollbacks: {
			{`spec: {policy: null}`, "spec.policy", "Required value"},
			{`spec: {policy: A}`, "spec.policy", noMatch},
			{`spec: {since: null, commit: null}`, "spec", "commit or since must be set"},
			{`spec: {since: yesterday}`, "spec.since", noMatch},
			{`spec: {until: "2026-11-21T10:00:00Z"}`, "spec", "until must be after since"},
			{`spec: {commit: abc}`, "spec.commit", noMatch},
			{`spec: {reason: " "}`, "spec.reason", "reason must not be blank"},
			{`spec: {reason: null}`, "spec.reason", "Required value"},
			{`spec: {by: null}`, "spec.by", "Required value"},
			{`spec: {groups: ["system:authenticated"]}`, "spec.groups[0]", everybody},
		},
		v1alpha1.Members: {
			{`spec: {kubeconfig: null, write: null}`, "spec", "exactly one of kubeconfig and agent must be set"},
			{`spec: {agent: {}}`, "spec", "exactly one of kubeconfig and agent must be set"},
			{`spec: {agent: {}, kubeconfig: null}`, "spec", "write may be set only with kubeconfig"},
			{`spec: {kubeconfig: {secret: null}}`, "spec.kubeconfig.secret", "Required value"},
			{`spec: {kubeconfig: {secret: other/edge-1}}`, "spec.kubeconfig.secret", noMatch},
			{`spec: {write: {secret: A}}`, "spec.write.secret", noMatch},
			{`spec: {readOnly: true}`, "spec", "write must not be set for a member that is read-only"},
		},
		v1alpha1.Notifications: notificationRefusals(),
		v1alpha1.PolicyStates: {
			{`status: {halts: [{reason: OverLimit, since: "2026-11-21T11:00:00.000000Z"}]}`, "status.halts[0].id", "Required value"},
			{`status: {halts: [` + strings.Repeat(`{id: a, reason: OverLimit, since: "2026-11-21T11:00:00.000000Z"},`, 2) + `]}`, "status.halts[1]", "Duplicate value"},
			{`status: {rollout: {wave: 0}}`, "status.rollout.wave", "greater than or equal to 1"},
			{`status: {rollout: {began: null}}`, "status.rollout.began", "Required value"},
			{`status: {allowances: [{halt: a, scope: Member, at: "2026-11-21T11:00:00.000000Z"}]}`, "status.allowances[0].expires", "Required value"},
			{`status: {allowances: [{halt: a, scope: Everything, at: "2026-11-21T11:00:00.000000Z", expires: "2026-11-21T11:00:00.000000Z"}]}`, "status.allowances[0].scope", unsupported},
			{`status: {approval: {requirements: [{required: 1, groups: ["system:authenticated"]}]}}`, "status.approval.requirements[0].groups[0]", everybody},
			{`status: {approval: {requirements: [{required: 1, serviceAccounts: [approver]}]}}`, "status.approval.requirements[0].serviceAccounts[0]", noAccount},
			{`status: {approval: {requirements: [{required: 1, validFor: 721h}]}}`, "status.approval.requirements[0].validFor", "validFor must be between 1m and 720h"},
			{`status: {history: [` + strings.Repeat(`{type: HaltBegan, id: a, at: "2026-11-21T11:00:00.000000Z"},`, 51) + `]}`, "status.history", "must have at most 50 items"},
		},
	}
}

func TestSchema_RejectsInvalidObjects(t *testing.T) {
	for resource, list := range refusals() {
		for _, r := range list {
			t.Run(resource+"/"+r.patch[:min(len(r.patch), 200)], func(t *testing.T) { refused(t, resource, with(t, full(t, resource, "refused"), r.patch), r) })
		}
	}
}

func refused(t *testing.T, resource string, u *unstructured.Unstructured, r refusal) {
	t.Helper()
	_, err := client(t, resource).Create(t.Context(), u, dryRun)
	if err == nil {
		t.Fatal("the object was admitted")
	}
	blamed(t, err, r)
}

// blamed checks that an error names the field, with the message wanted.
func blamed(t *testing.T, err error, r refusal) {
	t.Helper()
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		t.Fatalf("want Invalid, got: %v", err)
	}
	if !strings.Contains(err.Error(), r.want) {
		t.Errorf("want %q in: %v", r.want, err)
	}
	if !strings.Contains(err.Error(), r.field+": ") {
		t.Errorf("want field %q in: %v", r.field, err)
	}
}

// eachSchema calls f with each part of a schema, and where in an object it holds.
func eachSchema(s *apiextensionsv1.JSONSchemaProps, at []string, f func(*apiextensionsv1.JSONSchemaProps, []string)) {
	f(s, at)
	at = at[:len(at):len(at)]
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		eachSchema(&p, append(at, name), f)
	}
	if s.Items != nil && s.Items.Schema != nil {
		eachSchema(s.Items.Schema, append(at, "*"), f)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		eachSchema(s.AdditionalProperties.Schema, append(at, "*"), f)
	}
}

// TestRules_AreAllCovered: every rule has a message of ours and a test with an
// object that it rejects.
func TestRules_AreAllCovered(t *testing.T) {
	for _, resource := range resources() {
		tried := map[string]bool{}
		for _, r := range refusals()[resource] {
			tried[r.want] = true
		}
		for _, c := range changes()[resource] {
			tried[c.want] = true
		}
		rules := 0
		eachSchema(schemaOf(t, resource), nil, func(s *apiextensionsv1.JSONSchemaProps, at []string) {
			for _, v := range s.XValidations {
				if rules++; !tried[v.Message] {
					t.Errorf("%s: %s: no test covers the rule with message %q", resource, strings.Join(at, "."), v.Message)
				}
			}
		})
		if rules == 0 && resource != v1alpha1.PolicyStates { // which only federator writes
			t.Errorf("%s has no rules", resource)
		}
	}
}

// TestSchema_EnumsAreClosed puts an unknown value at each enumeration of an
// object that has every field.
func TestSchema_EnumsAreClosed(t *testing.T) {
	enums := 0
	for _, resource := range resources() {
		eachSchema(schemaOf(t, resource), nil, func(s *apiextensionsv1.JSONSchemaProps, at []string) {
			if len(s.Enum) == 0 || at[0] == "status" {
				return
			}
			u := full(t, resource, "enumerated")
			field, ok := set(u.Object, at, "Nonsense")
			if !ok {
				return // of a structure that is used elsewhere, too
			}
			enums++
			t.Run(resource+"/"+field, func(t *testing.T) {
				refused(t, resource, u, refusal{field: field, want: unsupported + `: "Nonsense": supported values: ` + quoted(s.Enum)})
			})
		})
	}
	if enums < 10 {
		t.Errorf("only %d enumerations were tried", enums)
	}
}

func quoted(values []apiextensionsv1.JSON) string {
	var out []string
	for _, v := range values {
		out = append(out, string(v.Raw))
	}
	return strings.Join(out, ", ")
}

// set replaces the first value at a path, which is returned as errors write it.
func set(v any, at []string, to string) (field string, ok bool) {
	switch v := v.(type) {
	case map[string]any:
		key := at[0]
		if len(at) == 1 {
			v[key] = to
			return key, true
		}
		if child, there := v[key]; there {
			field, ok = set(child, at[1:], to)
			if !strings.HasPrefix(field, "[") {
				field = "." + field
			}
			return key + field, ok
		}
	case []any:
		if len(v) > 0 && at[0] == "*" {
			if len(at) == 1 {
				v[0] = to
				return "[0]", true
			}
			field, ok = set(v[0], at[1:], to)
			return "[0]." + field, ok
		}
	}
	return "", false
}

// TestSchema_AdmittedPatternsCanBeMatched: what the schema accepts as a pattern,
// path.Match accepts, too.
func TestSchema_AdmittedPatternsCanBeMatched(t *testing.T) {
	patterns := map[string]string{} // of the schema, where it is
	eachSchema(schemaOf(t, v1alpha1.FleetPolicies), nil, func(s *apiextensionsv1.JSONSchemaProps, at []string) {
		if len(at) > 2 && at[0] == "spec" && slices.Contains([]string{"names", "namespaces"}, at[len(at)-2]) {
			patterns[s.Pattern] = strings.Join(at, ".")
		}
	})
	if len(patterns) != 3 {
		t.Fatalf("%d patterns, want those of members, namespaces and names: %v", len(patterns), patterns)
	}
	random := rand.New(rand.NewPCG(seed.Of(t), 0))
	const letters = `aab-/[[]]^*?\.`
	for pattern, where := range patterns {
		re, err := regexp.Compile(pattern)
		must(t, err)
		admitted := 0
		for range 200_000 {
			text := make([]byte, 1+random.IntN(9))
			for i := range text {
				text[i] = letters[random.IntN(len(letters))]
			}
			if !re.Match(text) {
				continue
			}
			admitted++
			if _, err := path.Match(string(text), "a/b"); err != nil {
				t.Fatalf("%s: %q is admitted, and cannot be matched: %v", where, text, err)
			}
		}
		if admitted < 1000 {
			t.Errorf("%s: only %d of the texts are admitted", where, admitted)
		}
	}
}

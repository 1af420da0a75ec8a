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
	noVersion   = "a kind is written without its version, such as Deployment.apps"
	noMatch     = "should match '"
	unsupported = "Unsupported value"
)

func refusals() map[string][]refusal {
	return map[string][]refusal{
		v1alpha1.FleetPolicies: {
			{"metadata: {name: " + strings.Repeat("a", 64) + "}", "", "the name of a FleetPolicy has at most 63 characters: it is a label of its Actions"},
			{`spec: {package: fleet}`, "spec.package", "data.fleet holds the documents of the fleet, and no policies"},
			{`spec: {package: fleet.views}`, "spec.package", "data.fleet holds the documents of the fleet, and no policies"},
			{`spec: {package: a-b}`, "spec.package", noMatch},
			{`spec: {package: null}`, "spec.package", "Required value"},
			{`spec: {source: A}`, "spec.source", noMatch},
			{`spec: {parameters: [1]}`, "spec.parameters", "must be of type object"},
			{`spec: {members: {names: [eu-1]}}`, "spec.members.names[0]", noMatch},
			{`spec: {members: {names: ["a/["]}}`, "spec.members.names[0]", noMatch},
			{`spec: {members: {names: [a/b, a/b]}}`, "spec.members.names[1]", "Duplicate value"},
			{`spec: {members: {labels: {matchExpressions: [{key: a, operator: In}]}}}`, "spec.members.labels.matchExpressions[0]", "In and NotIn take values; Exists and DoesNotExist take none"},
			{`spec: {match: {labels: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}}`, "spec.match.labels.matchExpressions[0]", "In and NotIn take values; Exists and DoesNotExist take none"},
			{`spec: {match: {labels: {matchExpressions: [{key: "a b", operator: Exists}]}}}`, "spec.match.labels.matchExpressions[0].key", noMatch},
			{`spec: {match: {labels: {matchLabels: {a: "b c"}}}}`, "spec.match.labels.matchLabels.a", noMatch},
			{`spec: {match: {kinds: [Deployment.v1.apps]}}`, "spec.match.kinds[0]", noVersion},
			{`spec: {match: {kinds: [Pod.v1]}}`, "spec.match.kinds[0]", noVersion},
			{`spec: {match: {kinds: [pods/log]}}`, "spec.match.kinds[0]", noMatch},
			{`spec: {match: {namespaces: ["[b-]"]}}`, "spec.match.namespaces[0]", noMatch},
			{`spec: {unknown: {mode: Strict}}`, "spec.unknown", "members are for mode Tolerate: Strict tolerates none"},
			{`spec: {unknown: {mode: null}}`, "spec.unknown", "members are for mode Tolerate: Strict tolerates none"},
			{`spec: {exemptions: [{reason: a}]}`, "spec.exemptions[0]", "an exemption selects something: members, namespaces, names or labels"},
			{`spec: {exemptions: [{reason: a, members: {}, namespaces: [], names: []}]}`, "spec.exemptions[0]", "an exemption selects something: members, namespaces, names or labels"},
			{`spec: {exemptions: [{reason: a, members: {names: [], labels: {matchLabels: {}}}, labels: {}}]}`, "spec.exemptions[0]", "an exemption selects something: members, namespaces, names or labels"},
			{`spec: {exemptions: [{reason: " ", names: [a]}]}`, "spec.exemptions[0].reason", "say why this is expected"},
			{`spec: {exemptions: [{names: [a]}]}`, "spec.exemptions[0].reason", "Required value"},
			{`spec: {exemptions: [{reason: a, names: ['a[']}]}`, "spec.exemptions[0].names[0]", noMatch},
			{`spec: {exemptions: [{reason: a, names: ['a\']}]}`, "spec.exemptions[0].names[0]", noMatch},
			{`spec: {limits: {window: 59s}}`, "spec.limits.window", "the window is from 1m to 720h"},
			{`spec: {limits: {window: 721h}}`, "spec.limits.window", "the window is from 1m to 720h"},
			{`spec: {limits: {maxAffected: {member: {count: null}}}}`, "spec.limits.maxAffected.member", "a limit has a count, a percent or both"},
			{`spec: {limits: {maxAffected: {policy: {count: 0}}}}`, "spec.limits.maxAffected.policy.count", "greater than or equal to 1"},
			{`spec: {limits: {maxAffected: {policy: {percent: 101}}}}`, "spec.limits.maxAffected.policy.percent", "less than or equal to 100"},
			{`spec: {limits: {maxAffected: {policy: {percent: 0.5}}}}`, "spec.limits.maxAffected.policy.percent", "must be of type integer"},
			{`spec: {limits: {actionsPerMinute: 0}}`, "spec.limits.actionsPerMinute", "greater than or equal to 1"},
			{`spec: {waves: [{name: a}, {name: a}]}`, "spec.waves[1]", "Duplicate value"},
			{`spec: {waves: [{name: a, soak: 721h}]}`, "spec.waves[0].soak", "the soak time is at most 720h"},
			{`spec: {waves: [{name: a, soak: -1h}]}`, "spec.waves[0].soak", noMatch},
			{`spec: {waves: [{name: a, health: {timeout: 0s}}]}`, "spec.waves[0].health.timeout", "the timeout is from 1s to 24h"},
			{`spec: {window: {schedule: "@daily"}}`, "spec.window.schedule", "a schedule has five fields: minute, hour, day of month, month and day of week, such as '0 2 * * MON-FRI'"},
			{`spec: {window: {schedule: "60 * * * *"}}`, "spec.window.schedule", "the minute is 0-59"},
			{`spec: {window: {schedule: "* 24 * * *"}}`, "spec.window.schedule", "the hour is 0-23"},
			{`spec: {window: {schedule: "* * 0 * *"}}`, "spec.window.schedule", "the day of the month is 1-31"},
			{`spec: {window: {schedule: "* * * FOO *"}}`, "spec.window.schedule", "the month is 1-12 or JAN-DEC"},
			{`spec: {window: {schedule: "* * * * 7"}}`, "spec.window.schedule", "the day of the week is 0-6, from Sunday, or SUN-SAT"},
			{`spec: {window: {duration: 30s}}`, "spec.window.duration", "a window stays open from 1m to 168h"},
			{`spec: {window: {duration: 169h}}`, "spec.window.duration", "a window stays open from 1m to 168h"},
			{`spec: {window: {timeZone: Local}}`, "spec.window.timeZone", "a time zone is a name of the IANA database, such as Europe/Berlin"},
			{`spec: {window: {timeZone: ../etc}}`, "spec.window.timeZone", "a time zone is a name of the IANA database, such as Europe/Berlin"},
			{`spec: {window: {timeZone: Mars/Olympus}}`, "spec.window.timeZone", "unknown time zone Mars/Olympus"},
			{`spec: {actAs: "system:admin"}`, "spec.actAs", "of the users of the system only a service account can be impersonated: system:serviceaccount:<namespace>:<name>"},
			{`spec: {actAs: "system:serviceaccount:a"}`, "spec.actAs", "of the users of the system only a service account can be impersonated: system:serviceaccount:<namespace>:<name>"},
			{`spec: {nonsense: true}`, "", `unknown field "spec.nonsense"`},
		},
		v1alpha1.PolicySources: {
			{`metadata: {name: a.b}`, "", "the name of a PolicySource is a DNS label: at most 63 of a-z, 0-9 and -"},
			{`spec: {secretRef: null}`, "spec", "ssh takes a secretRef, with identity and known_hosts"},
			{`spec: {secretRef: null, url: "git@git.example:a/b"}`, "spec", "ssh takes a secretRef, with identity and known_hosts"},
			{`spec: {url: "https://jane:secret@git.example/a"}`, "spec.url", "credentials belong into secretRef, not into the url"},
			{`spec: {url: "https://token@git.example/a"}`, "spec.url", "credentials belong into secretRef, not into the url"},
			{`spec: {url: "ssh://git:secret@git.example/a"}`, "spec.url", "credentials belong into secretRef, not into the url"},
			{`spec: {url: "http://git.example/a"}`, "spec.url", "http and git are neither private nor authentic: use https or ssh"},
			{`spec: {url: "git://git.example/a"}`, "spec.url", "http and git are neither private nor authentic: use https or ssh"},
			{`spec: {url: "git.example/a"}`, "spec.url", "a url is https://host/path, ssh://user@host/path, user@host:path or file:///path"},
			{`spec: {url: "ext::sh -c id"}`, "spec.url", "a url is https://host/path, ssh://user@host/path, user@host:path or file:///path"},
			{`spec: {url: "https://git.example/a?b=c"}`, "spec.url", "a url is https://host/path, ssh://user@host/path, user@host:path or file:///path"},
			{`spec: {ref: {branch: null}}`, "spec.ref", "a ref is one of branch, tag, commit and name"},
			{`spec: {ref: {tag: v1}}`, "spec.ref", "a ref is one of branch, tag, commit and name"},
			{`spec: {ref: {branch: "a..b"}}`, "spec.ref.branch", "this cannot be the name of a branch: see git-check-ref-format(1)"},
			{`spec: {ref: {branch: "-a"}}`, "spec.ref.branch", "this cannot be the name of a branch: see git-check-ref-format(1)"},
			{`spec: {ref: {branch: "a b"}}`, "spec.ref.branch", "this cannot be the name of a branch: see git-check-ref-format(1)"},
			{`spec: {ref: {branch: 'a\b'}}`, "spec.ref.branch", "this cannot be the name of a branch: see git-check-ref-format(1)"},
			{`spec: {ref: {branch: 'a[b'}}`, "spec.ref.branch", "this cannot be the name of a branch: see git-check-ref-format(1)"},
			{`spec: {ref: {branch: null, tag: "v1.lock"}}`, "spec.ref.tag", "this cannot be the name of a tag: see git-check-ref-format(1)"},
			{`spec: {ref: {branch: null, commit: abc}}`, "spec.ref.commit", noMatch},
			{`spec: {ref: {branch: null, name: main}}`, "spec.ref.name", "a name is a full one below refs/"},
			{`spec: {path: /a}`, "spec.path", "a path is relative to the repository's root, without '..'"},
			{`spec: {path: a/../../b}`, "spec.path", "a path is relative to the repository's root, without '..'"},
			{`spec: {path: 'a\b'}`, "spec.path", "a path is relative to the repository's root, without '..'"},
			{`spec: {interval: 9s}`, "spec.interval", "the interval is from 10s to 24h"},
			{`spec: {timeout: 11m}`, "spec.timeout", "the timeout is from 1s to 10m"},
			{`spec: {secretRef: {namespace: null}}`, "spec.secretRef.namespace", "Required value"},
			{`spec: {verification: {secretRef: null}}`, "spec.verification.secretRef", "Required value"},
			{`spec: {ceiling: {actions: null}}`, "spec.ceiling", "a ceiling above Observe says which actions it allows: verbs and kinds"},
			{`spec: {ceiling: {maxMode: DryRun, actions: []}}`, "spec.ceiling", "a ceiling above Observe says which actions it allows: verbs and kinds"},
			{`spec: {ceiling: {actions: [{verbs: [], kinds: [Pod]}]}}`, "spec.ceiling.actions[0].verbs", "at least 1 items"},
			{`spec: {ceiling: {actions: [{verbs: [patch], kinds: [Pod, "*"]}]}}`, "spec.ceiling.actions[0].kinds", "'*' stands alone: it is all kinds"},
			{`spec: {ceiling: {actions: [{verbs: [patch], kinds: [Pod.v1]}]}}`, "spec.ceiling.actions[0].kinds[0]", noVersion},
			{`spec: {ceiling: {members: {labels: {matchExpressions: [{key: a, operator: NotIn, values: []}]}}}}`, "spec.ceiling.members.labels.matchExpressions[0]", "In and NotIn take values; Exists and DoesNotExist take none"},
			{`spec: {maxDiff: 0}`, "spec.maxDiff", "greater than or equal to 1"},
			{`spec: {maxPrune: -1}`, "spec.maxPrune", "greater than or equal to 0"},
		},
		v1alpha1.Actions: {
			{`spec: {target: {kind: Secret}, patch: '[{"op":"replace","path":"/data/a","value":"eA=="}]'}`, "", "values of Secrets are not recorded: leave the patch out, patchHash says what it was"},
			{`spec: {target: {kind: Secret}, patchType: Merge, patch: '{"stringData":{"a":"x"}}'}`, "", "values of Secrets are not recorded: leave the patch out, patchHash says what it was"},
			{`{spec: {target: {kind: Secret}}, inverse: {patch: '{"data":{"a":"eA=="}}'}}`, "", "values of Secrets are not recorded: leave the patch out, patchHash says what it was"},
			{`spec: {verb: delete, patchType: null}`, "spec", "apply and patch have a patchHash; delete has neither patch nor patchHash"},
			{`spec: {patchHash: null}`, "spec", "apply and patch have a patchHash; delete has neither patch nor patchHash"},
			{`spec: {patchHash: abc}`, "spec.patchHash", noMatch},
			{`spec: {patch: null}`, "spec", "apply and patch have a patch, which only a Secret may leave out"},
			{`spec: {patchType: null}`, "spec", "a patch has a patchType, and nothing else has"},
			{`spec: {verb: apply}`, "spec", "a patch has a patchType, and nothing else has"},
			{`spec: {propagationPolicy: Orphan}`, "spec", "propagationPolicy is for delete"},
			{`spec: {target: {uid: null, resourceVersion: null}}`, "spec", "patch and delete have a target with uid and resourceVersion"},
			{`spec: {target: {uid: null}}`, "spec.target", "a target has uid and resourceVersion, or, where it does not exist yet, neither"},
			{`spec: {target: {resourceVersion: null}}`, "spec.target", "a target has uid and resourceVersion, or, where it does not exist yet, neither"},
			{`spec: {target: {kind: Pod.v1}}`, "spec.target.kind", noVersion},
			{`spec: {target: {member: eu-1}}`, "spec.target.member", noMatch},
			{`spec: {revision: r1}`, "spec.revision", noMatch},
			{`spec: {binding: null}`, "spec.binding", "Required value"},
			{`inverse: {irreversible: no}`, "inverse.irreversible", "must be of type string"},
			{`inverse: {irreversible: "no"}`, "inverse", "an inverse has a verb, or says why it is irreversible"},
			{`inverse: {verb: null, patch: null}`, "inverse", "an inverse has a verb, or says why it is irreversible"},
			{`inverse: {verb: delete}`, "inverse", "the inverses apply and patch have a patch, and nothing else has"},
			{`inverse: {patch: null}`, "inverse", "the inverses apply and patch have a patch, and nothing else has"},
		},
	}
}

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	for resource, list := range refusals() {
		for _, r := range list {
			t.Run(resource+"/"+r.patch, func(t *testing.T) { refused(t, resource, with(t, full(t, resource, "refused"), r.patch), r) })
		}
	}
}

func refused(t *testing.T, resource string, u *unstructured.Unstructured, r refusal) {
	t.Helper()
	_, err := client(t, resource).Create(t.Context(), u, dryRun)
	if err == nil {
		t.Fatal("it is admitted")
	}
	blamed(t, err, r)
}

// blamed checks that an error names the field, in the words wanted.
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

// TestEachRuleIsTried: no rule is without a message of ours, and none without an
// object that it refuses.
func TestEachRuleIsTried(t *testing.T) {
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
					t.Errorf("%s: %s: nothing tries the rule with message %q", resource, strings.Join(at, "."), v.Message)
				}
			}
		})
		if rules == 0 {
			t.Errorf("%s has no rules", resource)
		}
	}
}

// TestEnumsAreClosed puts a word that is none of them at each enumeration of an
// object that has every field.
func TestEnumsAreClosed(t *testing.T) {
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

// TestPatternsThatAreAdmittedCanBeMatched: what the schema takes for a pattern,
// path.Match does, too.
func TestPatternsThatAreAdmittedCanBeMatched(t *testing.T) {
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

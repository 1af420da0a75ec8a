package crds

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"federator.dev/federator/api/v1alpha1"
)

const (
	oneSink     = "exactly one of webhook, nats and alertmanager must be set"
	webhookURL  = "url must be https://host/path without credentials, or http:// on 127.0.0.1, localhost or [::1]"
	natsServers = "servers must be tls://host:port, or nats://host:port on 127.0.0.1, localhost or [::1], without credentials"
	alertURLs   = "urls must be https://host/path without credentials and query, or http:// on 127.0.0.1, localhost or [::1]"
)

// toNATS and toAlertmanager are patches that have a Notification send elsewhere.
func toNATS(spec string) string {
	return `spec: {webhook: null, nats: {` + spec + `}}`
}

func toAlertmanager(spec string) string {
	return `spec: {webhook: null, alertmanager: {` + spec + `}}`
}

// The URLs that are not admitted: of a webhook, and of Alertmanager, whose paths are appended to.
var (
	badURLs = []string{
		"http://pager.example/hook", "http://127.0.0.2/", "http://127x0.0.1/", "http://localhost.example/", "http://localhost:8080@a/", "http://[::2]/", "http://::1/",
		"https://jane@a/b", "https://jane:secret@a/b", "https://", "https:///b", "https://a b/", "https://a/#b", "ftp://a", "a", "", "https://?a", "http://localhost:port/",
	}
	badBaseURLs = append([]string{"https://a/b?c=d", "http://localhost?c"}, badURLs...)
	badServers  = []string{
		"nats://a:4222", "nats://127.0.0.2:4222", "nats://localhost.example:4222", "tls://a", "tls://a:", "tls://a:b", "tls://:4222", "tls://jane@a:4222", "tls://a:4222/", "tls://a:4222,tls://b:4222",
		"ws://localhost:4222", "tls://[a:4222", "a:4222", "",
	}
)

func notificationRefusals() []refusal {
	out := []refusal{
		{`metadata: {name: a.b}`, "", "metadata.name must be at most 63 lower case letters, digits and hyphens: policies name it"},
		{"metadata: {name: " + strings.Repeat("a", 64) + "}", "", "metadata.name must be at most 63 lower case letters, digits and hyphens: policies name it"},
		{`spec: {webhook: null}`, "spec", oneSink},
		{`spec: {nats: {servers: ["tls://a:4222"]}}`, "spec", oneSink},
		{`spec: {alertmanager: {urls: ["https://a"]}}`, "spec", oneSink},
		{`spec: {webhook: null, nats: {servers: ["tls://a:4222"]}, alertmanager: {urls: ["https://a"]}}`, "spec", oneSink},

		{`spec: {webhook: {url: null}}`, "spec.webhook.url", "Required value"},
		{`spec: {webhook: {url: "https://a/` + strings.Repeat("a", 2048) + `"}}`, "spec.webhook.url", "Too long"},
		{`spec: {webhook: {secretRef: null}}`, "spec.webhook.secretRef", "Required value"},
		{`spec: {webhook: {secretRef: {name: null}}}`, "spec.webhook.secretRef.name", "Required value"},
		{`spec: {webhook: {secretRef: {name: A}}}`, "spec.webhook.secretRef.name", noMatch},
		{`spec: {webhook: {groupBy: []}}`, "spec.webhook.groupBy", "at least 1 items"},
		{`spec: {webhook: {groupBy: [Policy, Policy]}}`, "spec.webhook.groupBy[1]", "Duplicate value"},
		{`spec: {webhook: {groupBy: [Name]}}`, "spec.webhook.groupBy[0]", unsupported},
		{`spec: {webhook: {wait: 3601s}}`, "spec.webhook.wait", "wait must be at most 1h"},
		{`spec: {webhook: {wait: "-1s"}}`, "spec.webhook.wait", noMatch},
		{`spec: {webhook: {wait: "0"}}`, "spec.webhook.wait", noMatch},
		{`spec: {webhook: {interval: 25h}}`, "spec.webhook.interval", "interval must be at most 24h"},
		{`spec: {webhook: {interval: 1d}}`, "spec.webhook.interval", noMatch},
		{`spec: {webhook: {maxMessages: 0}}`, "spec.webhook.maxMessages", "greater than or equal to 1"},
		{`spec: {webhook: {maxMessages: 1001}}`, "spec.webhook.maxMessages", "less than or equal to 1000"},

		{toNATS(``), "spec.nats.servers", "Required value"},
		{toNATS(`servers: []`), "spec.nats.servers", "at least 1 items"},
		{toNATS(`servers: ["tls://a:4222", "tls://a:4222"]`), "spec.nats.servers[1]", "Duplicate value"},
		{toNATS(`servers: [` + numbered("tls://a%d:4222", 11) + `]`), "spec.nats.servers", "must have at most 10 items"},
		{toNATS(`servers: ["tls://` + strings.Repeat("a", 300) + `:4222"]`), "spec.nats.servers[0]", "Too long"},
		{toNATS(`servers: ["tls://a:4222"], subject: ""`), "spec.nats.subject", noMatch},
		{toNATS(`servers: ["tls://a:4222"], subject: a..b`), "spec.nats.subject", noMatch},
		{toNATS(`servers: ["tls://a:4222"], subject: .a`), "spec.nats.subject", noMatch},
		{toNATS(`servers: ["tls://a:4222"], subject: "a.>"`), "spec.nats.subject", noMatch},
		{toNATS(`servers: ["tls://a:4222"], subject: "a.*"`), "spec.nats.subject", noMatch},
		{toNATS(`servers: ["tls://a:4222"], subject: "a b"`), "spec.nats.subject", noMatch},
		{toNATS(`servers: ["tls://a:4222"], subject: ` + strings.Repeat("a", 256)), "spec.nats.subject", "Too long"},
		{toNATS(`servers: ["tls://a:4222"], secretRef: {name: A}`), "spec.nats.secretRef.name", noMatch},
		{toNATS(`servers: ["tls://a:4222"], secretRef: {}`), "spec.nats.secretRef.name", "Required value"},

		{toAlertmanager(``), "spec.alertmanager.urls", "Required value"},
		{toAlertmanager(`urls: []`), "spec.alertmanager.urls", "at least 1 items"},
		{toAlertmanager(`urls: ["https://a", "https://a"]`), "spec.alertmanager.urls[1]", "Duplicate value"},
		{toAlertmanager(`urls: [` + numbered("https://a%d", 11) + `]`), "spec.alertmanager.urls", "must have at most 10 items"},
		{toAlertmanager(`urls: ["https://a/` + strings.Repeat("a", 2048) + `"]`), "spec.alertmanager.urls[0]", "Too long"},
		{toAlertmanager(`urls: ["https://a"], secretRef: {name: A}`), "spec.alertmanager.secretRef.name", noMatch},
		{toAlertmanager(`urls: ["https://a"], groupBy: []`), "spec.alertmanager.groupBy", "at least 1 items"},
		{toAlertmanager(`urls: ["https://a"], groupBy: [Type]`), "spec.alertmanager.groupBy[0]", unsupported},
		{toAlertmanager(`urls: ["https://a"], groupBy: [Policy, Transition]`), "spec.alertmanager.groupBy[1]", unsupported},
		{toAlertmanager(`urls: ["https://a"], groupBy: [Kind, Kind]`), "spec.alertmanager.groupBy[1]", "Duplicate value"},
		{toAlertmanager(`urls: ["https://a"], interval: 9s`), "spec.alertmanager.interval", "interval must be between 10s and 10m"},
		{toAlertmanager(`urls: ["https://a"], interval: 601s`), "spec.alertmanager.interval", "interval must be between 10s and 10m"},
		{toAlertmanager(`urls: ["https://a"], interval: soon`), "spec.alertmanager.interval", noMatch},

		{`spec: {rules: [` + strings.Repeat("{}, ", 50) + `{}]}`, "spec.rules", "must have at most 50 items"},
		{`spec: {rules: [{types: []}]}`, "spec.rules[0].types", "at least 1 items"},
		{`spec: {rules: [{types: [Verdict]}]}`, "spec.rules[0].types[0]", unsupported},
		{`spec: {rules: [{types: [Kind, Kind]}]}`, "spec.rules[0].types[1]", "Duplicate value"},
		{`spec: {rules: [{policies: [""]}]}`, "spec.rules[0].policies[0]", noMatch},
		{`spec: {rules: [{policies: ["a["]}]}`, "spec.rules[0].policies[0]", noMatch},
		{`spec: {rules: [{policies: [A]}]}`, "spec.rules[0].policies[0]", noMatch},
		{`spec: {rules: [{policies: [a/b]}]}`, "spec.rules[0].policies[0]", noMatch},
		{`spec: {rules: [{policies: [` + strings.Repeat("a", 254) + `]}]}`, "spec.rules[0].policies[0]", "Too long"},
		{`spec: {rules: [{policies: [a, a]}]}`, "spec.rules[0].policies[1]", "Duplicate value"},
		{`spec: {rules: [{policies: [` + numbered("a%d", 101) + `]}]}`, "spec.rules[0].policies", "must have at most 100 items"},
		{`spec: {rules: [{severities: [info]}]}`, "spec.rules[0].severities[0]", unsupported},
		{`spec: {rules: [{severities: [low, low]}]}`, "spec.rules[0].severities[1]", "Duplicate value"},
		{`spec: {rules: [{members: {names: [eu-1]}}]}`, "spec.rules[0].members.names[0]", noMatch},
		{`spec: {rules: [{members: {labels: {matchExpressions: [{key: a, operator: In}]}}}]}`, "spec.rules[0].members.labels.matchExpressions[0]", "values must be set if operator is In or NotIn, and must not be set if it is Exists or DoesNotExist"},
		{`spec: {rules: [{kinds: [Deployment.v1.apps]}]}`, "spec.rules[0].kinds[0]", noVersion},
		{`spec: {rules: [{kinds: ["a b"]}]}`, "spec.rules[0].kinds[0]", noMatch},
		{`spec: {rules: [{kinds: [Pod, Pod]}]}`, "spec.rules[0].kinds[1]", "Duplicate value"},
		{`spec: {rules: [{kinds: [` + numbered("Kind%d", 51) + `]}]}`, "spec.rules[0].kinds", "must have at most 50 items"},
		{`spec: {rules: [{namespaces: ["a["]}]}`, "spec.rules[0].namespaces[0]", noMatch},
		{`spec: {rules: [{namespaces: [` + numbered("a%d", 101) + `]}]}`, "spec.rules[0].namespaces", "must have at most 100 items"},
		{`spec: {rules: [{transitions: [opened]}]}`, "spec.rules[0].transitions[0]", noMatch},
		{`spec: {rules: [{transitions: ["Op*"]}]}`, "spec.rules[0].transitions[0]", noMatch},
		{`spec: {rules: [{transitions: [A` + strings.Repeat("a", 63) + `]}]}`, "spec.rules[0].transitions[0]", "Too long"},
		{`spec: {rules: [{transitions: [` + lettered("A%c", 51) + `]}]}`, "spec.rules[0].transitions", "must have at most 50 items"},
	}
	for _, url := range badURLs {
		out = append(out, refusal{fmt.Sprintf(`spec: {webhook: {url: %q}}`, url), "spec.webhook.url", webhookURL})
	}
	for _, url := range badBaseURLs {
		out = append(out, refusal{toAlertmanager(fmt.Sprintf(`urls: ["https://a", %q]`, url)), "spec.alertmanager.urls", alertURLs})
	}
	for _, server := range badServers {
		out = append(out, refusal{toNATS(fmt.Sprintf(`servers: ["tls://a:4222", %q]`, server)), "spec.nats.servers", natsServers})
	}
	return out
}

// numbered returns n items of a list.
func numbered(format string, n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%q", fmt.Sprintf(format, i)))
	}
	return strings.Join(out, ", ")
}

// lettered is numbered with letters, of which there are 52.
func lettered(format string, n int) string {
	var out []string
	for _, c := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[:n] {
		out = append(out, fmt.Sprintf(format, c))
	}
	return strings.Join(out, ", ")
}

// TestNotification_SinksAreAdmitted with all their fields, and with addresses on the loopback interface. Defaults are those of
// the API's documentation.
func TestNotification_SinksAreAdmitted(t *testing.T) {
	for name, c := range map[string]struct{ patch, want string }{
		"nats": {
			toNATS(`servers: ["tls://nats.example:4222", "nats://127.0.0.1:4222", "nats://localhost:1", "nats://[::1]:4222", "tls://10.0.0.1:4222", "tls://[fd00::1]:4222"], subject: ops.federator_1-a, secretRef: {name: nats.creds}`),
			`nats: {servers: ["tls://nats.example:4222", "nats://127.0.0.1:4222", "nats://localhost:1", "nats://[::1]:4222", "tls://10.0.0.1:4222", "tls://[fd00::1]:4222"], subject: ops.federator_1-a, secretRef: {name: nats.creds}}`,
		},
		"nats with defaults": {toNATS(`servers: ["tls://a:4222"]`), `nats: {servers: ["tls://a:4222"], subject: federator}`},
		"alertmanager": {
			toAlertmanager(`urls: ["https://a.example:9093/alerts", "http://127.0.0.1:9093", "http://localhost/", "http://[::1]:9093/a"], groupBy: [Kind, Namespace, Object], interval: 10m, secretRef: {name: a}`),
			`alertmanager: {urls: ["https://a.example:9093/alerts", "http://127.0.0.1:9093", "http://localhost/", "http://[::1]:9093/a"], groupBy: [Kind, Namespace, Object], interval: 10m, secretRef: {name: a}}`,
		},
		"alertmanager with defaults": {
			toAlertmanager(`urls: ["https://a"]`), `alertmanager: {urls: ["https://a"], groupBy: [Policy, Member, Severity], interval: 1m}`,
		},
		"webhook on loopback": {
			`spec: {webhook: {url: "http://[::1]:8080/hook?a=b", groupBy: null, wait: 1h, interval: 0s, maxMessages: 1}}`,
			`webhook: {url: "http://[::1]:8080/hook?a=b", secretRef: {name: pager}, groupBy: [Policy, Type, Transition], wait: 1h, interval: 0s, maxMessages: 1}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := with(t, full(t, v1alpha1.Notifications, "sink"), c.patch)
			u = with(t, u, `spec: {rules: null, includeText: null, suspend: null}`)
			got, err := client(t, v1alpha1.Notifications).Create(t.Context(), u, dryRun)
			must(t, err)
			if d := cmp.Diff(parse(t, c.want).Object, got.Object["spec"]); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if _, err := decode(t, got); err != nil {
				t.Error(err)
			}
		})
	}
}

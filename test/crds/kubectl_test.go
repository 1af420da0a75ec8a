package crds

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube/assets"
)

// kubectl runs the real one as an administrator of the hub.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	h := hub(t)
	built, err := assets.Ensure(t.Context(), assets.Options{Progress: os.Stderr}, assets.Kubectl)
	must(t, err)
	args = append([]string{"--kubeconfig", h.KubeconfigFile(), "--cache-dir", t.TempDir()}, args...)
	out, err := exec.CommandContext(t.Context(), built.Binary(assets.Kubectl), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// age is how old something is, which hangs on when a test runs.
var age = regexp.MustCompile(`\b[0-9]+[smhd][0-9smhd]*\b`)

// table is what kubectl has printed, with one space between columns that hold
// something and ages that are all the same.
func table(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Join(strings.Fields(age.ReplaceAllString(line, "AGO")), " "))
	}
	return strings.Join(lines, "\n")
}

func TestKubectl_GetAndExplain(t *testing.T) {
	for _, resource := range resources() {
		create(t, client(t, resource), full(t, resource, "shown"))
	}
	for args, want := range map[string]string{
		"fp shown": `
NAME MODE VIOLATIONS UNKNOWN CORRECTED STATE READY AGE
shown Enforce 14 3 41 Halted True AGO`,
		"fleetpolicies shown -o wide": `
NAME MODE VIOLATIONS UNKNOWN CORRECTED STATE READY AGE PACKAGE EXEMPT PROTECTED WAVE PLANS COMMIT MESSAGE
shown Enforce 14 3 41 Halted True AGO federator.network.unique_host 2 1 canary unique-host-9f86d081884c7d65 0123456789abcdef0123456789abcdef01234567 in effect`,
		"ps shown": `
NAME URL MAX MODE ACTIVE READY REASON CONTACT AGE
shown ssh://git@git.example:2222/platform/policies.git Enforce 0123456789abcdef0123456789abcdef01234567 False Compile CONTACT AGO`,
		"policysources shown -o wide": `
NAME URL MAX MODE ACTIVE READY REASON CONTACT AGE REF PATH NEWEST MESSAGE
shown ssh://git@git.example:2222/platform/policies.git Enforce 0123456789abcdef0123456789abcdef01234567 False Compile CONTACT AGO refs/heads/main fleet/policies 89abcdef0123456789abcdef0123456789abcdef0123456789abcdef01234567 policies/a.rego:3: unexpected token`,
		"members.federator.dev shown -o wide": `
NAME CONNECTED PAUSED READONLY AGE KUBECONFIG AGENT CONTACT EXPIRES
shown true true AGO edge-1 v0.4.0 CONTACT 2026-11-22T11:00:00Z`,
		"plans shown-9f86d081884c7d65": `
NAME POLICY PURPOSE TARGETS STATE REQUIRED BY AGE
shown-9f86d081884c7d65 shown Halt 14 Waiting 2 joe@example.com AGO`,
		"plans shown-9f86d081884c7d65 -o wide": `
NAME POLICY PURPOSE TARGETS STATE REQUIRED BY AGE WRITTEN GENERATION COMMIT MESSAGE HASH
shown-9f86d081884c7d65 shown Halt 14 Waiting 2 joe@example.com AGO 3 0123456789abcdef0123456789abcdef 0123456789abcdef0123456789abcdef01234567 1 of 2 people have approved 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`,
		"planparts shown-1": `
NAME PLAN NUMBER AGE
shown-1 shown 1 AGO`,
		"policystates shown -o wide": `
NAME HALT REASON WAVE PHASE AGE MESSAGE
shown 7f3c OverLimit canary Soaking AGO 11 of 600 targets in fleet/eu-1 exceed the limit of 10`,
		"approvals shown": `
NAME POLICY SOURCE BY STATE REASON EXPIRES AGE
shown unique-host joe@example.com Ignored reviewed in change 4711 2026-11-22T11:05:00+01:00 AGO`,
		"fnotif shown": `
NAME SINK READY REPORTED AGE
shown Webhook False REPORTED AGO`,
		"notifications shown -o wide": `
NAME SINK READY REPORTED AGE REASON MESSAGE
shown Webhook False REPORTED AGO Suspended spec.suspend is true`,
		"rollbacks shown": `
NAME POLICY BY STATE REASON PLANNED DONE FAILED REFUSED AGE
shown unique-host jane@example.com Waiting Approval 14 7 2 1 AGO`,
		"actions shown": `
NAME POLICY MEMBER VERB KIND NAMESPACE TARGET PHASE AGE
shown unique-host fleet/eu-1 patch Ingress.networking.k8s.io shop web Contended AGO`,
		"actions shown -o wide": `
NAME POLICY MEMBER VERB KIND NAMESPACE TARGET PHASE AGE ATTEMPTS VIOLATION MESSAGE COMMIT TARGET UID SUBJECT GENERATION WAVE ROLLBACK OF STARTED ENDED WRITTEN VERSION
shown unique-host fleet/eu-1 patch Ingress.networking.k8s.io shop web Contended AGO 2 host a.example is also served from fleet/us-1 spec.rules is owned by another 0123456789abcdef0123456789abcdef01234567 6f1f4c0e-95f0-4b34-8a4c-0d8f1f8a2f11 a.example 9f86d081884c7d659a2feaa0c55ad015 2 unique-host-3210 2026-11-21T11:00:00.000001Z 2026-11-21T11:00:01.000000Z 4712`,
	} {
		got := table(kubectl(t, append([]string{"get"}, strings.Fields(args)...)...))
		if strings.Contains(want, "CONTACT AGO") {
			// The clock may be before the time in testdata: kubectl says <invalid> then.
			got = regexp.MustCompile(`Compile (AGO|<invalid>) AGO`).ReplaceAllString(got, "Compile CONTACT AGO")
		}
		if strings.Contains(want, "v0.4.0 CONTACT") {
			got = regexp.MustCompile(`v0.4.0 (AGO|<invalid>)`).ReplaceAllString(got, "v0.4.0 CONTACT")
		}
		if strings.Contains(want, "False REPORTED") {
			got = regexp.MustCompile(`False (AGO|<invalid>)`).ReplaceAllString(got, "False REPORTED")
		}
		if want = strings.TrimSpace(want); got != want {
			t.Errorf("kubectl get %s:\n%s\nwant:\n%s", args, got, want)
		}
	}
	all := kubectl(t, "get", "federator", "-o", "name")
	for _, name := range []string{"fleetpolicy.federator.dev/shown", "policysource.federator.dev/shown", "action.federator.dev/shown", "plan.federator.dev/shown-9f86d081884c7d65", "approval.federator.dev/shown", "rollback.federator.dev/shown", "policystate.federator.dev/shown", "notification.federator.dev/shown"} {
		if !strings.Contains(all, name+"\n") {
			t.Errorf("the category has no %s:\n%s", name, all)
		}
	}
	if text := kubectl(t, "explain", "fleetpolicy.spec.limits.maxAffected"); !strings.Contains(text, "policy limits the number of objects that this policy changes on all members") {
		t.Errorf("kubectl explain says:\n%s", text)
	}
}

func TestAction_FieldSelectors(t *testing.T) {
	r := client(t, v1alpha1.Actions)
	create(t, r, with(t, full(t, v1alpha1.Actions, "found"), `spec: {binding: found-by-fields, target: {member: fleet/found}}`))
	create(t, r, with(t, full(t, v1alpha1.Actions, "found-not"), `{spec: {binding: found-by-fields}, status: {phase: Succeeded, manager: null}}`))
	for selector, want := range map[string]string{
		"spec.binding=found-by-fields":                            "found found-not",
		"spec.target.member=fleet/found":                          "found",
		"spec.binding=found-by-fields,status.phase=Succeeded":     "found-not",
		"spec.binding=found-by-fields,spec.target.kind=Namespace": "",
	} {
		list, err := r.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		must(t, err)
		var names []string
		for _, u := range list.Items {
			names = append(names, u.GetName())
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}
}

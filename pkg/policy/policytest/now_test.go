package policytest_test

import (
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy/policytest"
)

const expiryPolicy = `# METADATA
# title: Nothing has passed
# custom: {severity: low, kinds: [Pod]}
package federator.time.expiry

violation contains {"msg": "passed"} if data.fleet.passed[input.object.spec.until]
`

// expiryFleet is a Pod until the 2nd of January, and what is expected.
func expiryFleet(now, rest string) string {
	return "name: case\n" + now + `
members:
- name: fleet/a
  objects:
  - {apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}, spec: {until: "2026-01-02T00:00:00Z"}}
` + rest
}

const nothingFound = "expect: []\n"

const webFound = "expect: [{subject: fleet/a Pod shop/web, violations: [passed]}]\n"

func TestRun_FixturesHaveATime(t *testing.T) {
	for now, rest := range map[string]string{
		"now: 2026-01-01T23:59:59Z": nothingFound,
		"now: 2026-01-02T00:00:00Z": webFound,
		// Exemptions expire by it as well.
		"now: '2030-01-01T00:00:00+01:00'": "bindings: [{name: b, package: federator.time.expiry, exemptions: [{reason: x, expires: 2029-01-01T00:00:00Z}]}]\n" + webFound,
		"now: 2028-01-01T00:00:00Z":        "bindings: [{name: b, package: federator.time.expiry, exemptions: [{reason: x, expires: 2029-01-01T00:00:00Z}]}]\n" + strings.Replace(webFound, "}", ", exempt: true}", 1),
	} {
		for seed := range uint64(10) {
			r := run(t, with(map[string]string{"time/expiry/expiry.rego": expiryPolicy, "time/expiry/expiry_fleet.yaml": expiryFleet(now, rest)}), policytest.Options{Seed: seed})
			if !r.OK() {
				t.Errorf("%s: %+v", now, r.Cases)
			}
		}
	}
}

func TestRun_RefusesFixturesWithoutTheTimeThatIsAsked(t *testing.T) {
	for now, want := range map[string]string{
		"":                          "time/expiry/expiry_fleet.yaml:1:1: error: federator.time.expiry reads data.fleet.passed: a case must have now",
		"now: tomorrow":             `time/expiry/expiry_fleet.yaml:2:6: error: "tomorrow" is no time`,
		"now: 1960-01-02T00:00:00Z": "is no time after 1970",
	} {
		_, err := policytest.Run(t.Context(), with(map[string]string{"time/expiry/expiry.rego": expiryPolicy, "time/expiry/expiry_fleet.yaml": expiryFleet(now, nothingFound)}), policytest.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", now, err)
		}
	}
}

// TestRun_RegoTestsMockWhatHasPassed mocks the document as any other.
func TestRun_RegoTestsMockWhatHasPassed(t *testing.T) {
	r := run(t, with(map[string]string{"time/expiry/expiry.rego": expiryPolicy, "time/expiry/expiry_test.rego": `package federator.time.expiry_test

import data.federator.time.expiry

pod := {"ref": {}, "object": {"spec": {"until": "2026-01-02T00:00:00Z"}}}

test_of_the_fleet if count(expiry.violation) == 1 with input as pod with data.fleet as {"passed": {"2026-01-02T00:00:00Z": true}}

test_alone if count(expiry.violation) == 1 with input as pod with data.fleet.passed as {"2026-01-02T00:00:00Z": true}

test_not_yet if count(expiry.violation) == 0 with input as pod with data.fleet.passed as {}
`}), policytest.Options{})
	if !r.OK() || r.Count(policytest.Passed) < 3 {
		t.Errorf("%+v", r.Cases)
	}
}

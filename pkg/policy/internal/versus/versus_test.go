package versus

import (
	"slices"
	"testing"
)

// TestHandWritten_SaysWhatRegoSays compares the violations of all objects, with the
// parameters of all fixtures.
func TestHandWritten_SaysWhatRegoSays(t *testing.T) {
	set := shipped(t)
	for i := range contests {
		c := &contests[i]
		t.Run(c.policy, func(t *testing.T) {
			s := c.setup(t, set)
			found := 0
			for _, parameters := range s.given {
				found += s.compare(t, parameters)
			}
			if found == 0 {
				t.Error("nothing violates the policy")
			}
		})
	}
}

// compare compares what all sides say, and returns how many violations that is.
func (s *setup) compare(t *testing.T, parameters map[string]any) (n int) {
	t.Helper()
	cases := s.cases(t, parameters)
	hand := s.hand(cases[0].params)
	for _, c := range cases {
		var rego, byHand findings
		if err := s.policy.run(c.input, s.fleet, &rego); err != nil {
			t.Fatal(err)
		}
		want := inOrder(rego.list)
		n += len(want)
		same := func(side string, out *findings) {
			if got := inOrder(out.list); !slices.Equal(got, want) {
				t.Errorf("%v with %v, %s:\n got  %q\n want %q\n%s", c.ref, parameters, side, got, want, c.body)
			}
		}
		hand(&c.subject, &byHand)
		same("by hand", &byHand)
		if s.bytes != nil {
			var out findings
			s.bytes(c.params)(&c.subject, c.body, &out)
			same("by hand from bytes", &out)
		}
		var ofBytes, interpreted findings
		if err := s.policy.runBytes(c, &ofBytes); err != nil {
			t.Fatal(err)
		}
		same("compiled, from bytes", &ofBytes)
		if err := s.policy.interpret(c.term, s.fleet, &interpreted); err != nil {
			t.Fatal(err)
		}
		same("topdown", &interpreted)
	}
	return n
}

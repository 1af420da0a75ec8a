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
	if len(cases) == 0 {
		return 0
	}
	hand, ofBytes := s.hand(cases[0].params), s.bytes(cases[0].params)
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
		var read findings
		ofBytes(&c.subject, c.body, &read)
		same("by hand from bytes", &read)
		var decoded, interpreted findings
		if err := s.policy.runBytes(c, &decoded); err != nil {
			t.Fatal(err)
		}
		same("compiled, from bytes", &decoded)
		if err := s.policy.interpret(c.term, s.fleet, &interpreted); err != nil {
			t.Fatal(err)
		}
		same("topdown", &interpreted)
	}
	return n
}

package hubside

import (
	"net"
	"testing"
)

func TestShares_OneDoesNotHaveAll(t *testing.T) {
	s := newShares(3, 2)
	for i, tc := range []struct {
		who  string
		want bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"b", false}} {
		if s.take(tc.who) != tc.want {
			t.Errorf("%d: %s", i, tc.who)
		}
	}
	for _, who := range []string{"a", "a", "b"} {
		s.give(who)
	}
	if s.total != 0 || len(s.of) != 0 {
		t.Errorf("%d are left of %v", s.total, s.of)
	}
}

func TestOrigin_IsWhatOneHas(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:443": "192.0.2.1", "[::ffff:192.0.2.1]:1": "192.0.2.1", "[2001:db8::1]:1": "2001:db8::/64", "[2001:db8::ffff:1]:2": "2001:db8::/64", "[fe80::1%eth0]:1": "fe80::/64",
	} {
		ip, err := net.ResolveTCPAddr("tcp", address)
		must(t, err)
		if got := origin(ip); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}

package connection

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAddressFilter(t *testing.T) {
	for _, tc := range []struct{ addresses, says string }{
		{"10.0.0.1 192.168.1.1 172.16.0.1 8.8.8.8 2001:db8::1 fd00::1 100.64.0.1 ::ffff:10.0.0.1 64:ff9b::808:808 64:ff9b:1::808:808 64:ff9b:1:808:8:800:: 64:ff9b:1:0:8:808:7f00:0", ""},
		{"127.0.0.1 127.9.9.9 ::1 ::ffff:127.0.0.1 ::127.0.0.1 64:ff9b::7f00:1 2002:7f00:1::1 ::ffff:0:7f00:1", "loopback"},
		{"169.254.1.1 fe80::1 fe80::1%eth0 ::ffff:169.254.1.1 64:ff9b::a9fe:101", "link-local"},
		{"0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0", "unspecified"},
		{"224.0.0.1 239.1.1.1 ff02::1 ff0e::1 255.255.255.255", "multicast or broadcast"},
		{"169.254.169.254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 64:ff9b:1::a9fe:a9fe 64:ff9b:1:7::a9fe:a9fe fd00:ec2::254 fd00:ec2::23 fd20:ce::254 100.100.100.200 168.63.129.16 192.0.0.192", "metadata"},
	} {
		for _, s := range strings.Fields(tc.addresses) {
			a := netip.MustParseAddr(s)
			for _, trusted := range []bool{false, true} {
				r := addressFilter{loopback: trusted}.check(a)
				switch {
				case tc.says == "" || trusted && tc.says == "loopback":
					if r != nil {
						t.Errorf("%s (trusted %t) is refused: %v", s, trusted, r)
					}
				case r == nil || r.Reason != ForbiddenAddress || !strings.Contains(r.Message, tc.says) || !strings.Contains(r.Message, "network.allow"):
					t.Errorf("%s (trusted %t): %v, want %q", s, trusted, r, tc.says)
				}
			}
			bits := a.WithZone("").BitLen()
			allow := Network{Allow: []netip.Prefix{netip.PrefixFrom(a.WithZone(""), bits)}}
			if r := (addressFilter{allowed: allow.normalize()}).check(a); r != nil {
				t.Errorf("%s is refused although allowed: %v", s, r)
			}
		}
	}
	other := Network{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	if (addressFilter{allowed: other}).check(netip.MustParseAddr("169.254.169.254")) == nil {
		t.Error("allowing one range allows another")
	}
	for _, s := range []string{"64:ff9b::7f00:1", "2002:7f00:1::1", "::ffff:127.0.0.1"} {
		if r := (addressFilter{allowed: other}).check(netip.MustParseAddr(s)); r != nil {
			t.Errorf("%s leads to an allowed address and is refused: %v", s, r)
		}
	}
}

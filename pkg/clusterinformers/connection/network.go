package connection

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"time"

	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// dialTimeout is for one TCP connection.
const dialTimeout = 5 * time.Second

// addressFilter decides which addresses may be dialled. It sees them resolved: what a
// name resolved to earlier does not count.
type addressFilter struct {
	allowed  Network
	loopback bool
}

func (j addressFilter) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return Refuse(ForbiddenAddress, "%s %q is not an address and port", network, message.Clip(address))
	}
	if refusal := j.check(at.Addr()); refusal != nil {
		return refusal
	}
	return nil
}

// check returns why an address may not be dialled, or nil.
func (j addressFilter) check(a netip.Addr) *Refusal {
	a = a.WithZone("").Unmap()
	inner := embeddedIPv4(a)
	for _, p := range j.allowed.Allow {
		if p.Contains(a) || inner.IsValid() && p.Contains(inner) {
			return nil
		}
	}
	for _, x := range []netip.Addr{a, inner} {
		if !x.IsValid() {
			continue
		}
		if what := specialRange(x); what != "" && (!j.loopback || !x.IsLoopback()) {
			return Refuse(ForbiddenAddress, "%s is %s, which is not dialled unless network.allow of the configuration lists it, as %s", a, what, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return nil
}

// normalize returns the network with IPv4-mapped prefixes as IPv4, in which
// form addresses are compared.
func (n Network) normalize() Network {
	out := Network{Allow: make([]netip.Prefix, 0, len(n.Allow))}
	for _, p := range n.Allow {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		out.Allow = append(out.Allow, p)
	}
	return out
}

// metadataServices are the addresses of cloud services that hand credentials to
// any client inside.
var metadataServices = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.254/32"), // most
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS, by IPv6: metadata, pod identity
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google Cloud, by IPv6
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle Cloud
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure's host
}

var thisNetwork = netip.MustParsePrefix("0.0.0.0/8") // Linux takes 0.0.0.0 for itself

// specialRange says what an address is that no member should have, "" for any
// other.
func specialRange(a netip.Addr) string {
	for _, p := range metadataServices {
		if p.Contains(a) {
			return "a cloud's metadata service"
		}
	}
	switch {
	case a.IsLoopback():
		return "a loopback address"
	case a.IsUnspecified(), thisNetwork.Contains(a):
		return "an unspecified address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "a multicast or broadcast address"
	}
	return ""
}

// The ranges of IPv6 whose addresses lead to an IPv4 address inside them, with
// the byte at which it stands. Where shorter prefixes are used, too, it stands before the
// last three bytes, which are zero then, and is not looked for.
var ipv4Carriers = []struct {
	prefix  netip.Prefix
	at      int
	shorter bool
}{
	{netip.MustParsePrefix("::/96"), 12, false},           // IPv4-compatible, RFC 4291
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, false}, // IPv4-translated, RFC 2765
	{netip.MustParsePrefix("64:ff9b::/96"), 12, false},    // NAT64, RFC 6052
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12, true},   // NAT64 of a network of its own, RFC 8215
	{netip.MustParsePrefix("2002::/16"), 2, false},        // 6to4, RFC 3056
}

// embeddedIPv4 returns the IPv4 address that an IPv6 address leads to, or the zero
// Addr.
func embeddedIPv4(a netip.Addr) netip.Addr {
	if !a.Is6() || a.IsLoopback() || a.IsUnspecified() {
		return netip.Addr{}
	}
	for _, c := range ipv4Carriers {
		if c.prefix.Contains(a) {
			b := a.As16()
			if c.shorter && [3]byte(b[13:]) == [3]byte{} {
				return netip.Addr{}
			}
			return netip.AddrFrom4([4]byte(b[c.at : c.at+4]))
		}
	}
	return netip.Addr{}
}

// Network says where members may be. Loopback, link-local, multicast,
// unspecified and metadata addresses are refused unless a prefix allows them.
type Network struct {
	Allow []netip.Prefix `json:"allow,omitempty"`
}

// Dialer returns a dialer that refuses what the network does, for others than members:
// git, say. Its error is a *Refusal then.
func (n Network) Dialer() *net.Dialer { return n.dialer(false) }

// LoopbackDialer is Dialer for addresses that the operator has given: it also dials
// loopback addresses.
func (n Network) LoopbackDialer() *net.Dialer { return n.dialer(true) }

func (n Network) dialer(loopback bool) *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, ControlContext: addressFilter{allowed: n.normalize(), loopback: loopback}.control}
}

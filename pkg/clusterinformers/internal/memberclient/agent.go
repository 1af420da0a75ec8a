package memberclient

import (
	"context"
	"net"
	"net/http"

	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/clusterinformers/internal/h2"
)

// maxAgentConns is how many connections of an agent are in use at a time. It opens a few more than that.
const maxAgentConns = 4

// NewByAgent returns a client of a member by the connections that its agent has opened, which dial returns: they are
// verified already, and the agent has the credentials. Closing one must not wait for the agent. Nothing is sent by
// net/http: what an agent runs is known. Responses are compressed, as the link may be slow or paid for by the byte.
func NewByAgent(dial func(context.Context) (net.Conn, error), o TransportOptions) (*Client, error) {
	t := &transport{conns: map[*trackedConn]struct{}{}, onRead: o.OnRead}
	s := &switching{o: &o}
	own, err := h2.New(h2.Options{
		Secure: true, MaxConns: maxAgentConns,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			if o.OnDial != nil {
				o.OnDial()
			}
			return t.track(c), nil
		},
		PingInterval: o.PingInterval, PingTimeout: o.PingTimeout, Prolong: o.Prolong, IdleTimeout: idleTimeout,
		OnProtocolError: s.violated,
	})
	if err != nil {
		return nil, err
	}
	s.own, t.base = own, s
	cfg := &rest.Config{Host: "https://agent", UserAgent: UserAgent, DisableCompression: true, QPS: -1} // who calls bounds itself
	if t.next, err = rest.HTTPWrappersForConfig(cfg, compressed{s}); err != nil {
		return nil, err
	}
	return New(cfg, &http.Client{Transport: t}), nil
}

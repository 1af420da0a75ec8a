package agent_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/agent"
	"federator.dev/federator/pkg/agent/hubside"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// lossy is a connection that is cut when the token has been used up, before the answer comes.
type lossy struct {
	net.Conn
	used func() bool
}

func (c lossy) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.used() {
		_ = c.Conn.Close() // nothing to report to
		return 0, net.ErrClosed
	}
	return n, err
}

// TestJoin_AnAnswerThatIsLostCostsNothing: the agent comes again with its key, and nobody has to bring another token. Others
// cannot use it.
func TestJoin_AnAnswerThatIsLostCostsNothing(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	token := h.token(member, uid, time.Hour)
	parsed, err := joining.ParseToken(token)
	ok(t, err)
	var cut atomic.Bool
	used := func() bool {
		if cut.Load() {
			return false
		}
		s, err := h.client.CoreV1().Secrets(h.namespace).Get(context.WithoutCancel(t.Context()), hubside.TokenSecret, metav1.GetOptions{})
		return err == nil && strings.Contains(string(s.Data[parsed.ID()]), `"key"`) && !cut.Swap(true)
	}
	a, err := agent.New(agent.Options{
		Hubs: []string{h.address}, Token: token, Cluster: shared.Fleet.Members[0].RESTConfig(), Store: agent.InDirectory(t.TempDir()), Logger: h.log,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return lossy{c, used}, nil
		},
	})
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	until(t, "the agent is connected although the answer was lost", func() error {
		if !a.Ready() {
			return net.ErrClosed
		}
		return nil
	})
	cancel()
	ok(t, <-done)
	if !cut.Load() {
		t.Error("the answer was not lost")
	}
	other := h.runAgent(shared.Fleet.Members[0].RESTConfig(), token, agent.InDirectory(t.TempDir()))
	if err := <-other.done; err == nil || !strings.Contains(err.Error(), "the token is not known") {
		t.Errorf("another agent with the token: %v", err)
	}
	other.done <- nil
}

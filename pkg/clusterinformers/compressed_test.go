package clusterinformers_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// agentsOf has the connections of a fake server for those of an agent.
type agentsOf struct {
	address string
	tls     *tls.Config
}

func (a agentsOf) DialAgent(ctx context.Context, _, _ string) (net.Conn, error) {
	d := tls.Dialer{Config: a.tls}
	return d.DialContext(ctx, "tcp", a.address)
}

// followAgent follows a member by an agent that answers requests for Pods as it is told.
func followAgent(t *testing.T, answer func(w http.ResponseWriter, req *http.Request)) *rig {
	t.Helper()
	r := newRig(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		o.Kinds = []clusterinformers.KindRule{{Kind: "Pod"}, {Kind: "Namespace"}}
		s := newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.HasSuffix(req.URL.Path, "/pods") {
				return false
			}
			answer(w, req)
			return true
		})
		config, err := clientcmd.RESTConfigFromKubeConfig(s.spec.Kubeconfig)
		ok(t, err)
		u, err := url.Parse(config.Host)
		ok(t, err)
		a := agentsOf{address: u.Host, tls: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
		o.Agents = a
		r.source.view[0] = clusterinformers.Spec{Name: s.spec.Name, UID: s.spec.UID, Agent: true}
	})
	return r.start()
}

// zstdWriter sends what is written compressed, at once.
type zstdWriter struct {
	w   http.ResponseWriter
	enc *zstd.Encoder
}

func newZstdWriter(t *testing.T, w http.ResponseWriter) *zstdWriter {
	t.Helper()
	enc, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64<<10))
	if err != nil {
		t.Error(err)
	}
	w.Header().Set("Content-Encoding", "zstd")
	w.Header().Set("Content-Type", "application/json")
	return &zstdWriter{w, enc}
}

// send fails only where the client has gone.
func (z *zstdWriter) send(text string) {
	_, _ = z.enc.Write([]byte(text))
	_ = z.enc.Flush()
	_ = http.NewResponseController(z.w).Flush()
}

// TestAgent_GarbageEndsTheWatch: what cannot be decoded is shown, and the watch goes on where it was.
func TestAgent_GarbageEndsTheWatch(t *testing.T) {
	var watches atomic.Int32
	broken, repaired := make(chan struct{}), make(chan struct{})
	r := followAgent(t, func(w http.ResponseWriter, req *http.Request) {
		z := newZstdWriter(t, w)
		defer z.enc.Close()
		if rv := req.URL.Query().Get("resourceVersion"); rv == "7" {
			if watches.Add(1) == 1 {
				z.send(scriptedEvent("ADDED", scriptedPod("second", "8", "x")))
				<-broken
				_, _ = w.Write(bytes.Repeat([]byte{0xff}, 100))
				_ = http.NewResponseController(w).Flush()
				<-req.Context().Done()
				return
			}
			t.Errorf("the watch goes on at %s", rv)
		} else if rv == "8" {
			<-repaired
			z.send(scriptedEvent("ADDED", scriptedPod("third", "9", "x")))
			<-req.Context().Done()
			return
		}
		z.send(scriptedEvent("ADDED", scriptedPod("first", "6", "x")) + scriptedBookmark("7", true))
	})
	m := r.fleet.Members()[0]
	r.untilState(m, "Pod", aggregate.Synced)
	r.until("the second pod is held", func() bool { return len(r.held(m, "Pod")) == 2 })
	close(broken)
	r.untilState(m, "Pod", aggregate.Stale)
	if st := r.status(m); !strings.Contains(st.LastError, "malformed compression") {
		t.Errorf("the last error is %q", st.LastError)
	}
	close(repaired)
	r.untilState(m, "Pod", aggregate.Synced)
	r.until("the third pod is held", func() bool { return len(r.held(m, "Pod")) == 3 })
}

// TestAgent_BombIsOverBudget: few bytes that become very many harm their own kind only.
func TestAgent_BombIsOverBudget(t *testing.T) {
	r := followAgent(t, func(w http.ResponseWriter, req *http.Request) {
		z := newZstdWriter(t, w)
		defer z.enc.Close()
		z.send(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"`)
		for req.Context().Err() == nil {
			z.send(strings.Repeat("a", 1<<20))
		}
	})
	m := r.fleet.Members()[0]
	r.untilState(m, "Pod", aggregate.OverBudget)
	r.untilState(m, "Namespace", aggregate.Synced)
}

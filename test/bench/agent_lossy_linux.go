package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/kube"
)

// agentLossy measures how late events are by an agent behind a link of 150 ms in each direction that loses 2 % of
// the packets, beside small messages on a TCP connection of their own over the same link.
func agentLossy(ctx context.Context, b *bench) (rows []row, err error) {
	dir, err := os.MkdirTemp(b.dir, "lossy-")
	if err != nil {
		return nil, err
	}
	const delay, loss = 150 * time.Millisecond, 0.02
	link, err := openLossy(ctx, dir, delay, loss)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, link.close()) }()
	r, err := b.startAgentOver(ctx, kube.Options{}, link)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	plain, err := newPlainLink(link)
	if err != nil {
		return nil, err
	}
	defer plain.close()
	f, err := followAs(ctx, followOptions{agents: r.server}, contexts{r.spec}, "ConfigMap")
	if err != nil {
		return nil, err
	}
	defer f.stop()
	client, err := kubernetes.NewForConfig(r.configOf())
	if err != nil {
		return nil, err
	}
	events, messages, err := lateness(ctx, f, client, plain, b.n(300))
	if err != nil {
		return nil, err
	}
	at := func(list []float64, q float64) float64 { return list[min(len(list)-1, int(q*float64(len(list))))] }
	note := fmt.Sprintf("%d updates, five a second, each until the index has it; 150 ms each way, 2 %% of packets lost; baseline: 64 bytes over a connection of their own; goal 2x", len(events))
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}} {
		rows = append(rows, lower("agent/lossy_"+q.name, "ms", at(events, q.at), at(messages, q.at), note))
	}
	return rows, nil
}

// lateness returns how late, in sorted milliseconds, events were and messages beside them.
func lateness(ctx context.Context, f *follower, client kubernetes.Interface, plain *plainLink, n int) (events, messages []float64, err error) {
	maps := client.CoreV1().ConfigMaps("default")
	object, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, nil, err
	}
	ref := aggregate.Ref{Member: "default/edge", Kind: "ConfigMap", Namespace: "default", Name: "late"}
	arrived := func(version string) bool {
		o, ok := f.index.Snapshot().Get(ref)
		return ok && o.ResourceVersion() == version
	}
	if err := poll(ctx, time.Minute, func() bool { return arrived(object.ResourceVersion) }); err != nil {
		return nil, nil, fmt.Errorf("the first object: %w", err)
	}
	for i := range n {
		object.Labels = map[string]string{"n": fmt.Sprint(i)}
		if object, err = maps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
			return nil, nil, err
		}
		wrote := time.Now()
		if err := plain.send(wrote); err != nil {
			return nil, nil, err
		}
		for !arrived(object.ResourceVersion) {
			select {
			case <-f.index.Newer(f.index.Snapshot()):
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return nil, nil, context.Cause(ctx)
			}
		}
		events = append(events, float64(time.Since(wrote))/1e6)
		time.Sleep(time.Until(wrote.Add(200 * time.Millisecond)))
	}
	messages = plain.late(n)
	slices.Sort(events)
	slices.Sort(messages)
	return events, messages, nil
}

// plainLink is a TCP connection over the link.
type plainLink struct {
	near, far net.Listener
	conn      net.Conn
	wg        sync.WaitGroup

	mu   sync.Mutex // guards took
	took []float64
}

func newPlainLink(link *lossyLink) (*plainLink, error) {
	p := &plainLink{}
	var err error
	if p.far, err = net.Listen("tcp", net.JoinHostPort(lossyHere, "0")); err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(p.far.Addr().String())
	if err != nil {
		return nil, err
	}
	if p.near, err = link.forward(port); err != nil {
		return nil, err
	}
	if p.conn, err = net.Dial("tcp", p.near.Addr().String()); err != nil {
		return nil, err
	}
	p.wg.Go(func() { acceptAll(p.far, p.receive) })
	return p, nil
}

// receive notes how late messages are.
func (p *plainLink) receive(conn net.Conn) {
	defer conn.Close()
	var message [64]byte
	for {
		if _, err := io.ReadFull(conn, message[:]); err != nil {
			return
		}
		sent := time.Unix(0, int64(binary.BigEndian.Uint64(message[:8])))
		p.mu.Lock()
		p.took = append(p.took, float64(time.Since(sent))/1e6)
		p.mu.Unlock()
	}
}

func (p *plainLink) send(at time.Time) error {
	var message [64]byte
	binary.BigEndian.PutUint64(message[:8], uint64(at.UnixNano()))
	_, err := p.conn.Write(message[:])
	return err
}

// late returns how late the first n messages were, once they are there.
func (p *plainLink) late(n int) []float64 {
	for {
		p.mu.Lock()
		if len(p.took) >= n {
			defer p.mu.Unlock()
			return slices.Clone(p.took[:n])
		}
		p.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *plainLink) close() {
	_ = p.conn.Close()
	_ = p.near.Close()
	_ = p.far.Close()
	p.wg.Wait()
}

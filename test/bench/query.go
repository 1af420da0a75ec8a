package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"federator.dev/federator/test/kube"
)

// asker asks one server over TLS, with identity encoding.
type asker struct {
	client *http.Client
	host   string
}

func newAsker(config *rest.Config) (*asker, error) {
	c := rest.CopyConfig(config)
	c.DisableCompression = true
	client, err := rest.HTTPClientFor(c)
	return &asker{client: client, host: c.Host}, err
}

// answer is what one request gave.
type answer struct {
	first, whole time.Duration // to the first byte of the body, and to the last
	bytes        int64
}

func (a *asker) ask(ctx context.Context, path, accept string, body io.Writer) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.host+path, nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Accept", accept)
	started := time.Now()
	resp, err := a.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	if _, err := in.Peek(1); err != nil {
		return answer{}, fmt.Errorf("%s: %s: %w", path, resp.Status, err)
	}
	out := answer{first: time.Since(started)}
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(in, 500))
		return out, errors.Join(err, fmt.Errorf("%s: %s: %s", path, resp.Status, text))
	}
	out.bytes, err = io.Copy(body, in)
	out.whole = time.Since(started)
	return out, err
}

// measured are the answers to one request, sent repeatedly.
type measured struct {
	first, whole []time.Duration
	bytes        int64
}

func (a *asker) repeat(ctx context.Context, times int, path, accept string) (m measured, err error) {
	if _, err := a.ask(ctx, path, accept, io.Discard); err != nil { // warm
		return m, err
	}
	for range times {
		got, err := a.ask(ctx, path, accept, io.Discard)
		if err != nil {
			return m, err
		}
		m.first, m.whole, m.bytes = append(m.first, got.first), append(m.whole, got.whole), got.bytes
	}
	return m, nil
}

func (m measured) describe() string {
	rate := float64(m.bytes) / 1e6 / (ms(m.whole, 0.5) / 1e3)
	return fmt.Sprintf("p50 %.1f p99 %.1f ms, first byte %.1f, %.2f MB, %.0f MB/s", ms(m.whole, 0.5), ms(m.whole, 0.99), ms(m.first, 0.5), float64(m.bytes)/1e6, rate)
}

const (
	asJSON  = "application/json"
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
)

// question is one row: the query of the fleet, and that of an API server with
// 20,000 pods of its own for comparison, "" for what it cannot answer.
type question struct {
	name, ours, theirs, accept string
	times                      int
	goal                       string
}

// queryAPI asks a fleet of a million objects of 100 simulated members, and the
// same of one kube-apiserver that holds 20,000 pods.
func queryAPI(ctx context.Context, b *bench) (rows []row, err error) {
	members, pods, nodes := 100, b.n(9_900), b.n(100)
	control, err := kube.Start(ctx, kube.Options{Members: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, control.Stop()) }()
	single := control.Members[0]
	if err := kube.BulkPods(ctx, single, b.n(20_000), kube.BulkOptions{Direct: true}); err != nil {
		return nil, err
	}
	kubeconfig, stop, err := b.simfleet(ctx, "--members", strconv.Itoa(members), "--pods", strconv.Itoa(pods), "--nodes", strconv.Itoa(nodes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ours, _, stopServer, err := b.queryServer(ctx, control.Hub, kubeconfig, members*pods)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopServer()) }()
	fleet, err := newAsker(ours)
	if err != nil {
		return nil, err
	}
	server, err := newAsker(single.DirectRESTConfig())
	if err != nil {
		return nil, err
	}
	questions, err := b.questions(ctx, fleet, server)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d objects, %d members", members*(pods+nodes), members)
	for _, q := range questions {
		got, err := fleet.repeat(ctx, q.times, q.ours, q.accept)
		if err != nil {
			return rows, err
		}
		text, base := note+": "+got.describe(), 0.0
		if q.theirs != "" {
			single, err := server.repeat(ctx, q.times, q.theirs, q.accept)
			if err != nil {
				return rows, err
			}
			base = ms(single.whole, 0.99)
			text += "; one kube-apiserver: " + single.describe()
		}
		rows = append(rows, lower("query/"+q.name, "ms p99", ms(got.whole, 0.99), base, text+"; goal "+q.goal))
		b.progress("   %s: %s", q.name, text)
	}
	auth, err := b.authorization(ctx, control.Hub, ours)
	return append(rows, auth...), err
}

// questions picks selectors that return what a row wants.
func (b *bench) questions(ctx context.Context, fleet, server *asker) ([]question, error) {
	label, n, err := commonLabel(ctx, fleet, "/fleet", b.n(10_000))
	if err != nil {
		return nil, err
	}
	theirs, m, err := commonLabel(ctx, server, "", b.n(10_000))
	if err != nil {
		return nil, err
	}
	pod, err := somePod(ctx, fleet, "/fleet")
	if err != nil {
		return nil, err
	}
	single, err := somePod(ctx, server, "")
	if err != nil {
		return nil, err
	}
	const pods = "/api/v1/pods"
	fields := func(f string) string { return pods + "?fieldSelector=" + url.QueryEscape(f) }
	labels := func(l string) string { return pods + "?labelSelector=" + url.QueryEscape(l) }
	related := url.Values{"resource": {"pods"}, "member": {pod.member}, "namespace": {pod.namespace}, "name": {pod.name}, "depth": {"3"}}
	return []question{
		{"first_page_json", "/fleet" + pods + "?limit=500", pods + "?limit=500", asJSON, 200, "25"},
		{"first_page_table", "/fleet" + pods + "?limit=500", pods + "?limit=500", asTable, 200, "60"},
		{"list_10k", "/fleet" + pods + "?limit=10000", pods + "?limit=10000", asJSON, 20, "250, first byte 20"},
		{"list_10k_flat", "/flat" + pods + "?limit=10000", pods + "?limit=10000", asJSON, 20, "below /flat"},
		{"list_by_label", "/fleet" + labels(label), labels(theirs), asJSON, 20, fmt.Sprintf("250; %d objects, the kube-apiserver %d", n, m)},
		{"list_by_indexed_field", "/fleet" + fields("spec.nodeName="+pod.node), fields("spec.nodeName=" + single.node), asJSON, 50, "its cost follows the answer"},
		{"list_by_indexed_field_flat", "/flat" + fields("spec.nodeName="+flatName(pod.member, pod.node)), fields("spec.nodeName=" + single.node), asJSON, 50, "below /flat"},
		{"list_by_field", "/fleet" + fields("spec.hostname=nobody"), "", asJSON, 3, "none: every body is read"},
		{"count_by_member", "/query/v1/count?resource=pods&groupBy=member", "", asJSON, 100, "20"},
		{"count_by_field", "/query/v1/count?resource=pods&groupBy=field:status.phase", "", asJSON, 5, "none"},
		{"related_depth3", "/query/v1/related?" + related.Encode(), "", asJSON, 50, "its cost follows the answer"},
	}, nil
}

// flatName is the name below /flat of what has no namespace in a member.
func flatName(member, name string) string {
	namespace, cluster, _ := strings.Cut(member, "/")
	return namespace + "." + strings.ReplaceAll(cluster, ".", "_") + "." + name
}

// place is where a pod is.
type place struct{ member, namespace, name, node string }

type podList struct {
	Metadata struct{ ResourceVersion string }
	Items    []struct {
		Metadata struct {
			Namespace, Name     string
			Labels, Annotations map[string]string
		}
		Spec struct{ NodeName string }
	}
}

func list(ctx context.Context, a *asker, path string) (out podList, err error) {
	var body strings.Builder
	if _, err = a.ask(ctx, path, asJSON, &body); err != nil {
		return out, err
	}
	return out, json.Unmarshal([]byte(body.String()), &out)
}

func somePod(ctx context.Context, a *asker, prefix string) (place, error) {
	pods, err := list(ctx, a, prefix+"/api/v1/pods?limit=200")
	if err != nil {
		return place{}, err
	}
	for _, p := range pods.Items {
		if p.Spec.NodeName != "" {
			return place{p.Metadata.Annotations["federator.dev/member"], p.Metadata.Namespace, p.Metadata.Name, p.Spec.NodeName}, nil
		}
	}
	return place{}, errors.New("no pod has a node")
}

// commonLabel returns the label whose number of pods is nearest to want.
func commonLabel(ctx context.Context, a *asker, prefix string, want int) (label string, n int, err error) {
	pods, err := list(ctx, a, prefix+"/api/v1/pods?limit=2000")
	if err != nil {
		return "", 0, err
	}
	seen := map[string]int{}
	for _, p := range pods.Items {
		for k, v := range p.Metadata.Labels {
			seen[k+"="+v]++
		}
	}
	keys := make([]string, 0, len(seen))
	for k := range seen {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y string) int { return seen[y] - seen[x] })
	best := -1
	for _, k := range keys[:min(len(keys), 60)] {
		var body strings.Builder
		path := prefix + "/api/v1/pods?limit=1&labelSelector=" + url.QueryEscape(k)
		if prefix != "" {
			path = "/query/v1/count?resource=pods&labelSelector=" + url.QueryEscape(k)
		}
		if _, err := a.ask(ctx, path, asJSON, &body); err != nil {
			return "", 0, err
		}
		var counted struct{ Total int }
		if err := json.Unmarshal([]byte(body.String()), &counted); err != nil {
			return "", 0, err
		}
		if prefix == "" { // an API server does not count what a selector gives
			counted.Total = seen[k]
		}
		if off := max(counted.Total-want, want-counted.Total); best < 0 || off < best {
			best, label, n = off, k, counted.Total
		}
	}
	return label, n, nil
}

// authorization compares the first request of users without cached decisions
// with their second.
func (b *bench) authorization(ctx context.Context, hub *kube.Hub, admin *rest.Config) ([]row, error) {
	var cold, warm []time.Duration
	for i := range 20 {
		cred, err := hub.IssueCert(fmt.Sprintf("reader-%d", i), time.Hour, "system:masters")
		if err != nil {
			return nil, err
		}
		config := rest.CopyConfig(admin)
		config.CertData, config.KeyData = cred.Cert, cred.Key
		a, err := newAsker(config)
		if err != nil {
			return nil, err
		}
		if _, err := a.ask(ctx, "/fleet/version", asJSON, io.Discard); err != nil { // the handshake
			return nil, err
		}
		for _, into := range []*[]time.Duration{&cold, &warm} {
			got, err := a.ask(ctx, "/fleet/api/v1/pods?limit=1", asJSON, io.Discard)
			if err != nil {
				return nil, err
			}
			*into = append(*into, got.whole)
		}
	}
	return []row{lower("query/authorization_warm", "ms p99", ms(warm, 0.99), ms(cold, 0.99), fmt.Sprintf("a list of one pod; p50 %.2f, cold %.2f", ms(warm, 0.5), ms(cold, 0.5)))}, nil
}

// queryServer starts the child process that serves the fleet, and returns how
// an administrator of the hub asks it, and its process.
func (b *bench) queryServer(ctx context.Context, hub *kube.Hub, kubeconfig string, pods int) (*rest.Config, *os.Process, func() error, error) {
	hubConfig, err := kubeconfigOf(hub.DirectRESTConfig())
	if err != nil {
		return nil, nil, nil, err
	}
	hubFile, ca := filepath.Join(b.dir, "hub.kubeconfig"), filepath.Join(b.dir, "hub-ca.pem")
	if err := errors.Join(os.WriteFile(hubFile, hubConfig, 0o600), os.WriteFile(ca, hub.RESTConfig().CAData, 0o600)); err != nil {
		return nil, nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-child", "query-server", "--", kubeconfig, strconv.Itoa(pods))
	cmd.Env = append(os.Environ(), "BENCH_HUB="+hubFile, "BENCH_CA="+ca, "GOGC="+strconv.Itoa(gcPercent))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = b.out
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, err
	}
	stop := func() error { return errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()) }
	var ready struct {
		Host string
		CA   []byte
	}
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		return nil, nil, nil, errors.Join(fmt.Errorf("query server: %w", err), stop())
	}
	cred, err := hub.IssueCert("bench", 24*time.Hour, "system:masters")
	if err != nil {
		return nil, nil, nil, errors.Join(err, stop())
	}
	return &rest.Config{Host: ready.Host, TLSClientConfig: rest.TLSClientConfig{CAData: ready.CA, CertData: cred.Cert, KeyData: cred.Key}}, cmd.Process, stop, nil
}

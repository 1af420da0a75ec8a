package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"sync"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/h2"
	"federator.dev/federator/pkg/clusterinformers/internal/listwatch"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// answer is what has come of a request: a watch, a page or an error.
type answer struct {
	client *memberclient.Client
	watch  *watchResponse
	page   *page
	err    error
}

// watchResponse is one HTTP response that events are read from.
type watchResponse struct {
	client    *memberclient.Client
	body      stream.Stream
	events    *decode.Events
	encoding  decode.Encoding // of the body
	requested decode.Encoding // the requested encoding
	deadline  time.Time       // when it is taken for dead
	over      func()          // ends the request; nil where closing the body does
	scope     string          // its state, as a federator says
}

// close ends the request. It may block as long as the connection does, unless over is nil.
func (w *watchResponse) close() {
	if w.over != nil {
		w.over()
	}
	_ = w.body.Close() //nolint:errcheck // there is nothing to do about it
}

// A watch is requested for at least minWatch and at most twice that: longer than client-go does, as
// reopening 100,000 every 7 minutes costs a tenth of a core, and shorter than API servers do,
// since rights that are withdrawn are noticed only then. It is taken for dead when it lasts
// for watchSlack longer.
const (
	minWatch   = 10 * time.Minute
	watchSlack = 30 * time.Second
)

// A watch by an agent is requested for about an hour: opening one costs as much of a link that is paid for by the byte as
// hours of a watch of which nothing comes.
const (
	minAgentWatch = 50 * time.Minute
	maxAgentWatch = 70 * time.Minute
)

// byAgent reports whether the member is reached by its agent.
func (mb *member) byAgent() bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.usesAgent
}

// watchTime is how long the next watch is requested for.
func (mb *member) watchTime() time.Duration {
	if mb.byAgent() {
		return minAgentWatch + rand.N(maxAgentWatch-minAgentWatch)
	}
	return minWatch + rand.N(minWatch)
}

// ask sends the request that is due. It fills in the answer.
func (p *listWatch) ask(ctx context.Context, a *answer) (err error) {
	if p.request.Verb == listwatch.List {
		a.page, err = p.listPage(ctx, a.client)
		return err
	}
	a.watch, err = p.openWatch(ctx, a.client)
	return err
}

// openTimeout bounds the wait for the answer to a watch. API servers queue requests for up to
// a minute when they are busy.
const openTimeout = 90 * time.Second

var errNoAnswer = fmt.Errorf("no answer to a watch for %s", openTimeout)

func (p *listWatch) openWatch(ctx context.Context, client *memberclient.Client) (*watchResponse, error) {
	timeout := p.informer.member.watchTime()
	seconds := int64(timeout.Seconds())
	opts := metav1.ListOptions{Watch: true, ResourceVersion: p.request.ResourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: &seconds}
	if p.request.Verb == listwatch.Stream {
		yes := true
		opts.SendInitialEvents, opts.ResourceVersionMatch = &yes, metav1.ResourceVersionMatchNotOlderThan
	}
	ctx, cancel := context.WithCancelCause(ctx)
	over := client.Track(func() { cancel(nil) })
	late := time.AfterFunc(openTimeout, func() { cancel(errNoAnswer) })
	requested := decode.Encoding(p.informer.encoding.Load())
	scope := ""
	body, encoding, err := p.do(memberclient.WithScope(h2.WithRequestOptions(ctx, p.requestOptions()), &scope), client, &opts)
	late.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), errNoAnswer) {
			err = errNoAnswer
		}
		over()
		return nil, err
	}
	w := &watchResponse{client: client, scope: scope, encoding: encoding, requested: requested, deadline: time.Now().Add(timeout + watchSlack)}
	if s, detached := body.(stream.Stream); detached {
		over()
		w.body = s
	} else {
		w.body, w.over = stream.Pump(body), over
	}
	w.events = decode.NewEvents(nowReader{w.body}, int(p.informer.member.manager.opts.Budget.ResponseBytes))
	w.events.Charge = p.chargeResponse
	return w, nil
}

// requestOptions are those of a watch over our own transport. A first list begins with a small
// window, until it has a slot.
func (p *listWatch) requestOptions() h2.RequestOptions {
	o := h2.RequestOptions{Watch: true, Window: watchWindow, Charge: p.chargeResponse, Detached: true}
	if p.request.Verb == listwatch.Stream {
		o.Window = smallList
	}
	return o
}

// watchWindow is how much of a watch may come before it is read.
const watchWindow = 256 << 10

// nowReader reads what has come.
type nowReader struct{ body stream.Stream }

func (r nowReader) Read(b []byte) (int, error) { return r.body.ReadNow(b) }

// do sends a list or watch request, and returns what the answer is encoded in. Who
// answers a request for protobuf in JSON gets requests for JSON from then on.
func (p *listWatch) do(ctx context.Context, a *memberclient.Client, opts *metav1.ListOptions) (io.ReadCloser, decode.Encoding, error) {
	i := p.informer
	accept, asked := runtime.ContentTypeJSON, decode.Encoding(i.encoding.Load())
	if asked == decode.Protobuf {
		accept = runtime.ContentTypeProtobuf
	}
	body, encoding, err := p.get(ctx, a, opts, accept)
	if err != nil {
		return nil, asked, err
	}
	if encoding == decode.JSON && asked == decode.Protobuf {
		i.switchToJSON("the member answers requests for protobuf in JSON")
		asked = decode.JSON
	}
	return body, asked, nil
}

// get sends a list or watch request for something in a media type, and returns what the answer
// is encoded in: JSON where it says so, else protobuf.
func (p *listWatch) get(ctx context.Context, a *memberclient.Client, opts *metav1.ListOptions, accept string) (io.ReadCloser, decode.Encoding, error) {
	i := p.informer
	client, err := a.REST(i.res().GVR.GroupVersion())
	if err != nil {
		return nil, decode.JSON, err
	}
	opts.LabelSelector, opts.FieldSelector = i.rule.Labels, i.rule.Fields
	req := client.Get().Resource(i.res().GVR.Resource).SpecificallyVersionedParams(opts, scheme.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		SetHeader("Accept", accept).MaxRetries(0)
	if p.namespace != "" {
		req = req.Namespace(p.namespace)
	}
	contentType := ""
	body, err := req.Stream(memberclient.WithStream(ctx, &contentType)) // only a 200 is no error
	if err != nil {
		return nil, decode.JSON, memberclient.WrapRequest(req.URL().Path, err)
	}
	if media, _, err := mime.ParseMediaType(contentType); err == nil && media == runtime.ContentTypeJSON {
		return body, decode.JSON, nil
	}
	return body, decode.Protobuf, nil
}

// maxOpening is how many requests of a member's scopes are sent at a time. A watch that was
// answered is not among them, nor are up to maxSlow requests that wait for their answers for
// longer than slowAfter: that may be for a minute and more, and is no reason for others to wait.
const (
	maxOpening = 8
	maxSlow    = 64
	slowAfter  = 2 * time.Second
)

// Requests of scopes a second and member. After the member was out of reach all of its scopes
// are in the burst.
const (
	openRate  = 50
	openBurst = 25
)

// openers sends the requests of a member's scopes, a few at a time: what follows an
// answer is done without a goroutine.
type openers struct {
	limiter *rate.Limiter
	running sync.WaitGroup // of requests, and of what closes bodies

	mu      sync.Mutex
	opening int
	slow    int
	waiting []func(*turn)
}

// turn is a request's, of those that are sent at a time.
type turn struct {
	openers *openers
	timer   *time.Timer
	slow    bool // this and what follows: of the openers' mu
	over    bool
}

func newOpeners() *openers { return &openers{limiter: rate.NewLimiter(openRate, openBurst)} }

// setScopes says how many scopes there are.
func (o *openers) setScopes(n int) { o.limiter.SetBurst(max(openBurst, n)) }

// add has a request sent in its turn, by a function that begins it.
func (o *openers) add(send func(*turn)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(o.waiting, send)
	o.startLocked()
}

// startLocked sends what waits, as far as there is room.
func (o *openers) startLocked() {
	if o.opening == maxOpening || len(o.waiting) == 0 {
		return
	}
	o.opening++
	t, send := &turn{openers: o}, o.takeLocked()
	o.running.Go(func() {
		for send != nil {
			send(t)
			t, send = t.end()
		}
	})
}

// takeLocked returns what is to be sent next, nil for nothing.
func (o *openers) takeLocked() func(*turn) {
	if len(o.waiting) == 0 {
		o.waiting = nil
		return nil
	}
	send := o.waiting[0]
	o.waiting[0] = nil
	o.waiting = o.waiting[1:]
	return send
}

// begin waits until the request may be sent.
func (t *turn) begin(ctx context.Context) error {
	err := t.openers.limiter.Wait(ctx)
	t.timer = time.AfterFunc(slowAfter, t.giveWay)
	return err
}

// giveWay has another request sent while this one waits for its answer.
func (t *turn) giveWay() {
	o := t.openers
	o.mu.Lock()
	defer o.mu.Unlock()
	if t.over || o.slow == maxSlow {
		return
	}
	t.slow = true
	o.slow++
	o.opening--
	o.startLocked()
}

// end ends the turn. It returns the next, if there is one and this was not given away.
func (t *turn) end() (next *turn, send func(*turn)) {
	if t.timer != nil {
		t.timer.Stop()
	}
	o := t.openers
	o.mu.Lock()
	defer o.mu.Unlock()
	t.over = true
	if t.slow {
		o.slow--
		return nil, nil
	}
	if send = o.takeLocked(); send == nil {
		o.opening--
	}
	return &turn{openers: o}, send
}

// close closes a body, which may take as long as the connection that it came over.
func (o *openers) close(w *watchResponse) { o.running.Go(w.close) }

// send sends the request of the listWatch, and hands it the answer. A context is held for as
// long as the request is under way: there are as many listWatches as scopes.
func (p *listWatch) send(t *turn) {
	a := &answer{}
	ctx, cancel := context.WithCancel(p.informer.ctx)
	p.stop.Store(&cancel)
	if p.informer.ended.Load() {
		cancel()
	}
	a.err = recoverPanic(func() error {
		if err := t.begin(ctx); err != nil {
			return err
		}
		if a.client = p.informer.member.conn.current(); a.client == nil {
			return ErrUnreachable
		}
		return p.ask(ctx, a)
	})
	p.stop.Store(nil)
	if w := a.watch; w != nil && w.over != nil {
		over := w.over
		w.over = func() { over(); cancel() }
	} else {
		cancel()
	}
	p.inbox.Store(a)
	p.task.Wake()
}

// cancel ends the request under way.
func (p *listWatch) cancel() {
	if stop := p.stop.Load(); stop != nil {
		(*stop)()
	}
}

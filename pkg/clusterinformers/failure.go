package clusterinformers

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/listwatch"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
	"federator.dev/federator/pkg/clusterinformers/internal/zstdstream"
)

// errInitialEvents is of a list that was not complete.
var errInitialEvents = errors.New("the watch ended before its initial events")

// failedRequest takes the error of a request that was not answered as it should.
func (p *listWatch) failedRequest(now time.Time, a *answer) {
	var panicked *panicError
	if errors.As(a.err, &panicked) {
		p.panicked(panicked)
		return
	}
	p.fail(now, a.client, decode.Encoding(p.informer.encoding.Load()), a.err)
}

// failed takes the end of a watch that is open, or the failure of a page (w is nil).
func (p *listWatch) failed(now time.Time, w *watchResponse, err error) {
	if w == nil {
		p.fail(now, nil, decode.JSON, err)
		return
	}
	p.closeWatch()
	if errors.Is(err, io.EOF) { // as the error of a request it is of the connection
		p.closed(now)
	} else {
		p.fail(now, w.client, w.requested, err)
	}
	if !p.machine.Listing() {
		p.informer.restarts.Add(1)
		p.informer.metrics.restarts.Inc()
	}
}

// fail decides how a listWatch goes on after an error, and shows what it means for the scope.
func (p *listWatch) fail(now time.Time, client *memberclient.Client, requested decode.Encoding, err error) {
	i := p.informer
	var rewound *rewoundError
	switch {
	case errors.As(err, &rewound):
		p.endRequest(now, listwatch.Busy, 0)
		i.member.rewound(i.resets, i.kind, rewound)
	case errors.Is(err, errOverBudget):
		p.overBudget(now, err.Error())
	case errors.Is(err, decode.ErrTooLarge):
		p.tooLarge(now, err)
	case errors.Is(err, decode.ErrUnknownField), errors.Is(err, decode.ErrMalformed):
		i.member.conn.recordKindError(i.kind, err)
		// What was not requested in JSON is requested in it before it is suspect.
		if !i.switchToJSON(err.Error()) && requested == decode.JSON {
			p.suspect = true
			p.markDown(err)
		}
		p.endRequest(now, listwatch.Busy, 0)
	case errors.Is(err, zstdstream.ErrMalformed):
		i.member.conn.recordKindError(i.kind, err)
		p.suspect = true
		p.markDown(err)
		p.endRequest(now, listwatch.Busy, 0)
	default:
		p.refused(now, client, err)
	}
}

// closed takes the end of a watch by its server, which is no failure once the initial events have
// come.
func (p *listWatch) closed(now time.Time) {
	if p.machine.Listing() {
		p.markDown(errInitialEvents)
	}
	p.endRequest(now, listwatch.Closed, 0)
}

// tooLarge takes a frame or page that is larger than is accepted.
func (p *listWatch) tooLarge(now time.Time, err error) {
	i := p.informer
	switch {
	case p.request.Verb == listwatch.List && p.request.Limit != 1:
		p.endRequest(now, listwatch.TooLarge, 0)
		i.log().Info("reducing the page size of a list: a page exceeded the response limit", "objects", p.machine.Limit())
	case p.request.Verb != listwatch.List && i.switchToJSON(err.Error()):
		// What answers may not speak protobuf at all, and then its text reads
		// as a length. As JSON a size is what has come.
		i.member.conn.recordKindError(i.kind, err)
		p.endRequest(now, listwatch.Busy, 0)
	default:
		p.overBudget(now, err.Error())
	}
}

// refused takes an error of the member or of the connection to it.
func (p *listWatch) refused(now time.Time, client *memberclient.Client, err error) {
	i, conn := p.informer, p.informer.member.conn
	class := classify(err)
	if class != connectionFailed && class != unauthorized {
		conn.recordKindError(i.kind, err)
	}
	switch class {
	case connectionFailed, unauthorized:
		if client != nil {
			conn.reportFailure(client, err)
		}
		p.markDown(err)
		p.endRequest(now, listwatch.Broken, 0)
	case serverBusy:
		p.markDown(err)
		seconds, _ := apierrors.SuggestsClientDelay(err)
		p.endRequest(now, listwatch.Busy, min(time.Duration(seconds)*time.Second, maxRetryAfter))
	case forbidden, notServed:
		p.endRequest(now, listwatch.Refused, 0)
		switch {
		case p.request.Verb == listwatch.Stream: // a list without may be allowed
		case class == forbidden:
			i.setState(p, aggregate.Forbidden, err.Error())
		default:
			i.setState(p, aggregate.Unknown, err.Error())
			i.member.triggerDiscovery()
		}
	case expired:
		i.mu.Lock()
		p.cause = "expired"
		i.mu.Unlock()
		end := listwatch.Expired
		if versionTooLarge(err) {
			end = listwatch.TooNew
		}
		p.endRequest(now, end, 0)
	case unsupported:
		if (p.request.Verb == listwatch.List || apierrors.IsNotAcceptable(err)) && i.switchToJSON(err.Error()) {
			p.endRequest(now, listwatch.Again, 0)
			return
		}
		if p.request.Verb != listwatch.Stream { // it lists in pages
			p.markDown(err)
		}
		p.endRequest(now, listwatch.Unsupported, 0)
	}
}

// maxRetryAfter bounds how long a server may ask to wait.
const maxRetryAfter = time.Minute

// endRequest tells the machine how the request has ended.
func (p *listWatch) endRequest(now time.Time, end listwatch.End, retry time.Duration) {
	if p.machine.Ended(p.request.ID, now, end, retry) == listwatch.Discard {
		p.discard()
	}
}

// overBudget empties the scope, so that the others of the member can go on, and lists it again
// after a while.
func (p *listWatch) overBudget(now time.Time, why string) {
	p.restart(now, overBudgetDelay+rand.N(overBudgetJitter))
	p.informer.emptyOverBudget(p, why)
}

// markSyncing shows that a list is under way. Objects that are there already are
// Stale until it is complete.
func (p *listWatch) markSyncing() {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	switch p.state {
	case aggregate.Unknown:
		i.showLocked(p, aggregate.Syncing, "")
	case aggregate.Synced:
		i.showLocked(p, aggregate.Stale, "relisting")
	default:
	}
}

// markDown shows that what is held is not kept up to date at the moment, or that it is not
// listed yet, and why.
func (p *listWatch) markDown(why error) {
	i := p.informer
	if canceled(why) || errors.Is(why, ErrUnreachable) {
		why = i.member.conn.unreachable()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch p.state {
	case aggregate.Synced:
		i.showLocked(p, aggregate.Stale, why.Error())
	case aggregate.Unknown, aggregate.Syncing:
		if p.machine.Listing() && p.request.ID > 0 && p.reason != message.Clip(why.Error()) {
			i.showLocked(p, aggregate.Syncing, why.Error())
		}
	default:
	}
}

// markUnwatched shows that what is held is not kept up to date at the moment. What is said already
// says more.
func (p *listWatch) markUnwatched(why error) {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.state == aggregate.Synced {
		i.showLocked(p, aggregate.Stale, why.Error())
	}
}

// markUp shows that what is held is kept up to date again.
func (p *listWatch) markUp() {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.state != aggregate.Synced {
		i.showLocked(p, aggregate.Synced, "")
		if p.resumed {
			i.member.auditor.woken.Fire()
		}
	}
}

// errorClass is what an error of a request to a member means for who made it.
type errorClass int

const (
	connectionFailed errorClass = iota // the connection failed: report it, wait, continue
	serverBusy                         // the member cannot at the moment: back off, continue
	unauthorized                       // the credentials are not accepted: report it, wait
	forbidden                          // this kind is not allowed
	notServed                          // this kind is not served
	expired                            // the resourceVersion is too old: list again
	unsupported                        // the member does not understand this kind of request
)

func classify(err error) errorClass {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return connectionFailed
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return unauthorized
	case apierrors.IsForbidden(err):
		return forbidden
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return notServed
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), versionTooLarge(err):
		return expired
	case apierrors.IsNotAcceptable(err), apierrors.IsBadRequest(err), apierrors.IsInvalid(err):
		return unsupported
	}
	return serverBusy
}

// versionTooLarge reports the answer of a server that has not reached the
// resourceVersion yet, as after a restore.
func versionTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// canceled reports whether an error is of a request that was canceled here.
func canceled(err error) bool { return errors.Is(err, context.Canceled) }

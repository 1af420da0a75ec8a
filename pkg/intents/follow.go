package intents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/klauspost/compress/zstd"

	"federator.dev/federator/internal/sleep"
)

// Waits before a process is asked again.
const (
	firstWait = 200 * time.Millisecond
	lastWait  = 2 * time.Second
)

// follow reads what a process says until the context ends.
func (r *Receiver) follow(ctx context.Context, t *teller) {
	log := r.opts.Logger.With("process", t.id)
	said := false // that it is not known; nothing has come since
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		before := time.Now()
		err := r.listen(ctx, t, func() {
			if said {
				log.Info("the intents of a process are known again")
			}
			said = false
		})
		if ctx.Err() != nil {
			return
		}
		level := slog.LevelDebug
		if !said {
			level = slog.LevelWarn
		}
		said = true
		log.Log(ctx, level, "the intents of a process are not known", "error", err)
		if time.Since(before) > lastWait {
			wait = firstWait
		}
		if sleep.For(ctx, wait) != nil {
			return
		}
	}
}

var errSilent = errors.New("it is silent")

// listen reads one stream until it ends, or is silent. known is called when a batch was taken.
func (r *Receiver) listen(ctx context.Context, t *teller, known func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(SilentAfter, func() { cancel(errSilent) })
	defer silence.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.peer.URL+streamPath, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Accept-Encoding", encoding)
	response, err := (&http.Client{Transport: t.peer.Client.Transport}).Do(request) // without a time-out
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", response.Status)
	}
	body := io.Reader(response.Body)
	if response.Header.Get("Content-Encoding") == encoding {
		plain, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(4*window))
		if err != nil {
			return err
		}
		defer plain.Close()
		body = plain
	}
	err = read(ctx, body, t.id, maxBatch, func() { silence.Reset(SilentAfter) }, func(ctx context.Context, b *batch) error {
		m := told{t, b, time.Now(), make(chan error, 1)}
		select {
		case r.inbox <- m:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		silence.Reset(2 * SilentAfter) // this process may take its time
		select {
		case err := <-m.taken:
			if err == nil {
				known()
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return errors.Join(err, context.Cause(ctx))
}

package hubside

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// tokenReader reads TokenSecret. All who wait for a read share the next one, so that however many strangers show tokens
// that nobody has made, the hub is asked at a rate, and who has a token is not refused for them.
type tokenReader struct {
	secrets corev1client.SecretInterface
	rate    *rate.Limiter
	ctx     context.Context // of Run: a read is of all who wait, and not of one request

	mu   sync.Mutex
	next *tokenRead // that has not begun, or nil
}

type tokenRead struct {
	done   chan struct{}
	secret *corev1.Secret // for all who wait: nobody changes it
	err    error
}

func newTokenReader(secrets corev1client.SecretInterface) *tokenReader {
	return &tokenReader{secrets: secrets, rate: rate.NewLimiter(readRate, readRate)}
}

// read returns the Secret as it is now, or a little later.
func (r *tokenReader) read(ctx context.Context) (*corev1.Secret, error) {
	r.mu.Lock()
	read, first := r.next, r.next == nil
	if first {
		read = &tokenRead{done: make(chan struct{})}
		r.next = read
	}
	r.mu.Unlock()
	if first { // who comes first reads for the others, also if its agent goes away
		r.get(r.ctx, read)
	}
	select {
	case <-read.done:
		return read.secret, read.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (r *tokenReader) get(ctx context.Context, read *tokenRead) {
	defer close(read.done)
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	read.err = r.rate.Wait(ctx)
	r.mu.Lock()
	r.next = nil // who comes from now on may have a token that is not read any more
	r.mu.Unlock()
	if read.err == nil {
		read.secret, read.err = r.secrets.Get(ctx, TokenSecret, metav1.GetOptions{})
	}
}

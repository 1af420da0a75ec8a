package hubside

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// logged is what was logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func keeper(client *fake.Clientset, log *slog.Logger) *Server {
	return &Server{
		o: Options{Namespace: "fed", Logger: log}, client: client, registry: newRegistry(1, time.Hour), reload: trigger.New(), loaded: make(chan struct{}),
		tokens: newTokenReader(client.CoreV1().Secrets("fed")),
	}
}

// TestServer_KeepsItsSecrets: what is deleted while it runs is there again soon, with the CAs of before.
func TestServer_KeepsItsSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		secrets := client.CoreV1().Secrets("fed")
		s := keeper(client, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		s.tokens.ctx = ctx
		go s.keep(ctx)
		synctest.Wait()
		first, err := secrets.Get(ctx, AuthoritySecret, metav1.GetOptions{})
		must(t, err)
		s.load(first)
		for _, name := range []string{AuthoritySecret, PublicSecret, TokenSecret} {
			must(t, secrets.Delete(ctx, name, metav1.DeleteOptions{}))
		}
		_, err = s.redeem(ctx, joining.NewToken([32]byte{}), "key")
		if err == nil || !strings.Contains(err.Error(), TokenSecret) {
			t.Errorf("without the Secret of tokens: %v", err)
		}
		time.Sleep(ensureEvery)
		synctest.Wait()
		again, err := secrets.Get(ctx, AuthoritySecret, metav1.GetOptions{})
		must(t, err)
		if !maps.EqualFunc(first.Data, again.Data, func(a, b []byte) bool { return string(a) == string(b) }) {
			t.Error("the CAs are others")
		}
		_, err = CreateToken(ctx, client, "fed", "edge/a", "uid", time.Hour)
		must(t, err)
	})
}

// TestServer_PublishesWhatItMay: that one Secret cannot be created keeps nobody from the others.
func TestServer_PublishesWhatItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: AuthoritySecret, Namespace: "fed"}}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: PublicSecret, Namespace: "fed"}})
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), TokenSecret, nil)
		})
		var log logged
		s := keeper(client, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		go s.keep(ctx)
		synctest.Wait()
		ca, err := client.CoreV1().Secrets("fed").Get(ctx, AuthoritySecret, metav1.GetOptions{})
		must(t, err)
		s.load(ca)
		synctest.Wait()
		public, err := client.CoreV1().Secrets("fed").Get(ctx, PublicSecret, metav1.GetOptions{})
		must(t, err)
		cancel()
		synctest.Wait()
		if len(public.Data[authoritiesKey]) == 0 || !strings.Contains(log.String(), "Secret fed/"+TokenSecret) {
			t.Errorf("the CAs are not published, or the log does not name the Secret: %s", log.String())
		}
	})
}

// TestServer_WarnsOnceOfACAThatExpires.
func TestServer_WarnsOnceOfACAThatExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var log logged
		s := keeper(client, slog.New(slog.NewTextHandler(&log, nil)))
		all := parsed(t, made(t, time.Now().Add(warnBefore+time.Hour-authorityLife)), time.Now())
		s.authorities.Store(&all)
		ctx, cancel := context.WithCancel(t.Context())
		go s.keep(ctx)
		synctest.Wait()
		early := log.String()
		time.Sleep(3 * time.Hour)
		cancel()
		synctest.Wait()
		if early != "" || strings.Count(log.String(), "rotate-ca") != 1 {
			t.Errorf("%q, and then %s", early, log.String())
		}
	})
}

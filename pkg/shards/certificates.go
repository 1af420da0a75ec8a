package shards

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/pkg/shards/internal/peerca"
)

const (
	secretType  = "federator.dev/shards"
	ensureEvery = time.Minute // that the Secret is there and its CAs do not expire
	ensureRetry = 2 * time.Second
)

// certificate is this process's own.
type certificate struct {
	mu   sync.Mutex
	cert *tls.Certificate
	of   *peerca.Authorities
	made time.Time
}

// own returns this process's certificate, made again for other CAs, when half of its life has passed, and when the clock was set
// back to before it.
func (s *Shards) own() (*tls.Certificate, *peerca.Authorities, error) { return s.ownAt(time.Now()) }

func (s *Shards) ownAt(now time.Time) (*tls.Certificate, *peerca.Authorities, error) {
	all := s.authorities.Load()
	if all == nil {
		return nil, nil, errors.New("shards: the CAs of peers are not known yet")
	}
	c := &s.certificate
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cert == nil || c.of != all || now.Before(c.cert.Leaf.NotBefore) || c.cert.Leaf.NotAfter.Sub(now) < c.cert.Leaf.NotAfter.Sub(c.made)/2 {
		cert, err := all.Certificate(s.o.ID, now)
		if err != nil {
			return nil, nil, fmt.Errorf("shards: %w", err)
		}
		c.cert, c.of, c.made = cert, all, now
	}
	return c.cert, all, nil
}

// TLS returns the configuration of the listener that peers connect to: with certificates of peers alone. The certificates change
// while it is used.
func (s *Shards) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, all, err := s.own()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"},
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: all.Pool,
				SessionTicketsDisabled: true, // a resumed session would not be verified by the CAs of now
				VerifyConnection: func(state tls.ConnectionState) error {
					_, err := peerca.ID(state.PeerCertificates[0])
					return err
				},
			}, nil
		},
	}
}

// clientTLS returns the configuration of a connection to a peer, which must be that one.
func (s *Shards) clientTLS(id string) (*tls.Config, error) {
	cert, all, err := s.own()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: all.Pool, ServerName: id, NextProtos: []string{"h2", "http/1.1"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil },
	}, nil
}

// PeerOf returns which process a request is from that came over a listener with TLS.
func PeerOf(r *http.Request) (id string, ok bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return "", false
	}
	id, err := peerca.ID(r.TLS.PeerCertificates[0])
	return id, err == nil
}

// load takes the CAs of the Secret. What makes no sense is logged; where nothing does, the last CAs stay in use.
func (s *Shards) load(secret *corev1.Secret) {
	defer s.reload.Fire()
	if len(secret.Data) == 0 {
		return // it is filled
	}
	name := secret.Namespace + "/" + secret.Name
	all, skipped, err := peerca.Parse(secret.Data, time.Now())
	for _, err := range skipped {
		s.log.Error("a CA of peers is not usable", "secret", name, "error", err)
	}
	if err != nil {
		s.log.Error("the CAs of peers are not usable", "secret", name, "error", err)
		return
	}
	s.authorities.Store(all)
	s.loading.Do(func() { close(s.loaded) })
}

// keepAuthorities sees to it that there are CAs, and that the newest does not expire, until ctx is done.
func (s *Shards) keepAuthorities(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-s.reload:
			select {
			case <-s.loaded: // it will be looked after in time
				continue
			default:
			}
		case <-next.C:
		case <-ctx.Done():
			return
		}
		wait := ensureEvery
		err := s.changeAuthorities(ctx, peerca.Renewed)
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
			s.log.Warn("the CAs of peers could not be kept, retrying", "error", err)
			wait = ensureRetry
		}
		next.Reset(wait)
	}
}

func (s *Shards) changeAuthorities(ctx context.Context, change func(map[string][]byte, time.Time) (map[string][]byte, error)) error {
	ctx, cancel := context.WithTimeout(ctx, s.hubTimeout())
	defer cancel()
	return changeAuthorities(ctx, s.client, s.o.Namespace, s.o.Secret, change)
}

// changeAuthorities changes the Secret of the CAs by compare-and-swap: of several processes that do one wins.
func changeAuthorities(ctx context.Context, client kubernetes.Interface, namespace, name string, change func(map[string][]byte, time.Time) (map[string][]byte, error)) error {
	secrets := client.CoreV1().Secrets(namespace)
	secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
	there := err == nil
	if apierrors.IsNotFound(err) {
		secret, err = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: secretType}, nil
	}
	if err == nil {
		var data map[string][]byte
		data, err = change(secret.Data, time.Now())
		switch {
		case err != nil || data == nil:
		case there:
			secret.Data = data
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}) // only if it is as it was read
		default:
			secret.Data = data
			_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("Secret %s/%s: %w", namespace, name, err)
	}
	return nil
}

// RotateAuthority adds a CA of peers, which signs in a while, when all processes trust it. Where old ones are dropped the newest is
// the only one that is left. Connections that there are stay: processes that are started again have none by an old CA.
func RotateAuthority(ctx context.Context, client kubernetes.Interface, namespace, secret string, dropOld bool) error {
	change := peerca.Added
	if dropOld {
		change = peerca.Newest
	}
	if err := changeAuthorities(ctx, client, namespace, secret, change); err != nil {
		return fmt.Errorf("the CAs of peers: %w", err)
	}
	return nil
}

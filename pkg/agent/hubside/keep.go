package hubside

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/pkg/agent/internal/identity"
)

const (
	minRetry    = time.Second
	maxRetry    = 30 * time.Second
	ensureEvery = 30 * time.Second // that the Secrets are there, which this process need not have the right to watch
	pruneEvery  = time.Hour
)

// keep sees to it that there is on the hub what there must be, says which CAs there are, and drops tokens that have
// expired, until ctx is done.
func (s *Server) keep(ctx context.Context) {
	next, retry := time.NewTimer(0), minRetry
	defer next.Stop()
	pruned := time.Now()
	var warned [sha256.Size]byte // of which CA it was said that it expires
	for {
		select {
		case <-s.reload:
		case <-next.C:
		case <-ctx.Done():
			return
		}
		warned = s.warn(warned)
		wait := ensureEvery
		if err := s.ensure(ctx); err == nil {
			retry = minRetry
		} else if ctx.Err() == nil {
			s.o.Logger.Warn("agents: the hub refuses, retrying", "error", err)
			wait, retry = retry, min(2*retry, maxRetry)
		}
		next.Reset(wait)
		if time.Since(pruned) < pruneEvery {
			continue
		}
		pruned = time.Now()
		if err := s.prune(ctx); err != nil && ctx.Err() == nil {
			s.o.Logger.Debug("dropping expired tokens failed", "error", err) // the next time, or another process
		}
	}
}

// ensure makes the Secrets be there, and say what they should.
func (s *Server) ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	var all authorities
	if loaded := s.authorities.Load(); loaded != nil {
		all = *loaded
	}
	now := time.Now()
	err := all.ensure(ctx, s.client, s.o.Namespace, now)
	if len(all) > 0 { // also where there is one Secret that cannot be created
		err = errors.Join(err, all.publish(ctx, s.client, s.o.Namespace, now))
	}
	return err
}

// warn says once of a CA that it is the newest, and expires.
func (s *Server) warn(warned [sha256.Size]byte) [sha256.Size]byte {
	all := s.authorities.Load()
	if all == nil {
		return warned
	}
	now := time.Now()
	last := all.newest(now)
	if last.Cert == nil {
		return warned
	}
	digest := identity.Digest(last.Cert)
	if digest != warned && last.Cert.NotAfter.Sub(now) < warnBefore {
		s.o.Logger.Warn("the newest CA of agents expires, and all agents have to join again then: make another with federator agent rotate-ca",
			"ca", last.Name, "expires", last.Cert.NotAfter)
		return digest
	}
	return warned
}

func (s *Server) prune(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	secrets := s.client.CoreV1().Secrets(s.o.Namespace)
	kept, err := secrets.Get(ctx, TokenSecret, metav1.GetOptions{})
	if err != nil || !prune(kept, time.Now()) {
		return err
	}
	_, err = secrets.Update(ctx, kept, metav1.UpdateOptions{})
	return err
}

// ensure creates the Secrets that there are not: with these CAs, which a process that runs has, or else with a first one.
// Of several processes that do, one wins, and the others use what it has made.
func (all authorities) ensure(ctx context.Context, client kubernetes.Interface, namespace string, now time.Time) error {
	secrets := client.CoreV1().Secrets(namespace)
	var errs []error
	for _, name := range []string{AuthoritySecret, PublicSecret, TokenSecret} {
		s, err := secrets.Get(ctx, name, metav1.GetOptions{})
		there := err == nil
		switch {
		case apierrors.IsNotFound(err):
			s, err = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Type: secretType}, nil
		case there && (name != AuthoritySecret || len(s.Data) > 0):
			continue
		}
		if err == nil && name == AuthoritySecret {
			if s.Data, err = all.data(); err == nil && len(all) == 0 {
				s.Data, err = all.next(now)
			}
		}
		switch {
		case err != nil:
		case there: // somebody has made an empty one, as the chart does
			_, err = secrets.Update(ctx, s, metav1.UpdateOptions{}) // only if it is as it was read
		default:
			_, err = secrets.Create(ctx, s, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("Secret %s/%s: %w", namespace, name, err))
		}
	}
	return errors.Join(errs...)
}

// publish has PublicSecret say which CAs there are: first that of federator's own certificate, which tokens name.
func (all authorities) publish(ctx context.Context, client kubernetes.Interface, namespace string, now time.Time) error {
	certs, serving := all.certificates(), all.oldest(now).Cert
	slices.SortStableFunc(certs, func(a, b *x509.Certificate) int {
		switch serving {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	})
	secrets, text := client.CoreV1().Secrets(namespace), identity.Encode(certs...)
	s, err := secrets.Get(ctx, PublicSecret, metav1.GetOptions{})
	if err == nil && !bytes.Equal(s.Data[authoritiesKey], text) {
		s.Data = map[string][]byte{authoritiesKey: text}
		_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) {
		return nil // another process says the same
	}
	if err != nil {
		return fmt.Errorf("Secret %s/%s: %w", namespace, PublicSecret, err)
	}
	return nil
}

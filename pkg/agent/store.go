package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/pkg/agent/internal/identity"
)

// Kept is what an agent keeps over a restart.
type Kept struct {
	Certificate []byte `json:"certificate"` // PEM; empty until it has joined
	Key         []byte `json:"key"`         // PEM
	Authorities []byte `json:"authorities"` // PEM
	Token       string `json:"token"`       // ID of the token that it has joined with, or is about to
}

// Store keeps what an agent keeps.
type Store interface {
	// Load returns what was saved last, nil where there is nothing.
	Load(context.Context) (*Kept, error)
	Save(context.Context, *Kept) error
}

// The keys of a Secret.
const (
	authoritiesKey = "ca.crt"
	tokenKey       = "token-id"
)

type secretStore struct {
	client          kubernetes.Interface
	namespace, name string
}

// InSecret keeps it in a Secret of the agent's own cluster.
func InSecret(client kubernetes.Interface, namespace, name string) Store {
	return secretStore{client, namespace, name}
}

func (s secretStore) Load(ctx context.Context) (*Kept, error) {
	secret, err := s.client.CoreV1().Secrets(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("Secret %s/%s: %w", s.namespace, s.name, err)
	case len(secret.Data[corev1.TLSPrivateKeyKey]) == 0:
		return nil, nil
	}
	return &Kept{
		Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey],
		Authorities: secret.Data[authoritiesKey], Token: string(secret.Data[tokenKey]),
	}, nil
}

func (s secretStore) Save(ctx context.Context, k *Kept) error {
	secrets := s.client.CoreV1().Secrets(s.namespace)
	secret, err := secrets.Get(ctx, s.name, metav1.GetOptions{})
	write := secrets.Update
	if apierrors.IsNotFound(err) {
		secret, err = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: s.namespace}, Type: corev1.SecretTypeTLS}, nil
		write = func(ctx context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
			return secrets.Create(ctx, secret, metav1.CreateOptions{})
		}
	}
	if err == nil {
		secret.Data = map[string][]byte{corev1.TLSCertKey: k.Certificate, corev1.TLSPrivateKeyKey: k.Key, authoritiesKey: k.Authorities, tokenKey: []byte(k.Token)}
		_, err = write(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("Secret %s/%s: %w", s.namespace, s.name, err)
	}
	return nil
}

// keptFile is the file of a directory.
const keptFile = "agent.json"

type directory string

// InDirectory keeps it in a file of a directory, which only the user of the process may read.
func InDirectory(path string) Store { return directory(path) }

func (d directory) Load(context.Context) (*Kept, error) {
	text, err := os.ReadFile(filepath.Join(string(d), keptFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	k := &Kept{}
	if err == nil {
		err = json.Unmarshal(text, k)
	}
	return k, err
}

func (d directory) Save(_ context.Context, k *Kept) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(string(d), keptFile+".*") // only for its owner
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has its name by then
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(string(d), keptFile))
}

// credentials are what an agent connects with.
type credentials struct {
	kept        *Kept
	certificate tls.Certificate // with Leaf
	pool        *x509.CertPool
	renewAt     time.Time // by the monotonic clock

	saved bool // of Run's goroutine
}

// parse returns what is kept as it is used.
func (k *Kept) parse() (*credentials, error) {
	pair, err := tls.X509KeyPair(k.Certificate, k.Key)
	if err != nil {
		return nil, err
	}
	authorities, err := identity.Certificates(k.Authorities)
	if err != nil {
		return nil, fmt.Errorf("CAs: %w", err)
	}
	return &credentials{kept: k, certificate: pair, pool: identity.Pool(authorities)}, nil
}

// valid reports whether the certificate is not over.
func (c *credentials) valid(now time.Time) bool { return now.Before(c.certificate.Leaf.NotAfter) }

// life returns how long the certificate is valid, from when it was made.
func (c *credentials) life() time.Duration {
	return c.certificate.Leaf.NotAfter.Sub(c.certificate.Leaf.NotBefore)
}

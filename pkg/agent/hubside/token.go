package hubside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// Bounds of how long a token may be used.
const (
	DefaultTokenLife = time.Hour
	MaxTokenLife     = 7 * 24 * time.Hour
)

// record is what the hub knows of a token that has not expired, under its ID in TokenSecret.
type record struct {
	Hash    string    `json:"hash"`
	Member  string    `json:"member"`
	UID     string    `json:"uid"`
	Expires time.Time `json:"expires"`
	// Key is the digest of the key that has used it, "" before: with the same key an agent comes again
	// to which the answer was lost.
	Key string `json:"key,omitempty"`
}

// CreateToken returns the text of a token by which one agent can join as a member, once: as the Member of now, with its
// UID. It needs to get PublicSecret and patch TokenSecret in federator's namespace.
func CreateToken(ctx context.Context, client kubernetes.Interface, namespace, member, uid string, life time.Duration) (string, error) {
	if _, err := identity.Parse(member, uid); err != nil {
		return "", fmt.Errorf("member %q: %w", member, err)
	}
	if life <= 0 || life > MaxTokenLife {
		return "", fmt.Errorf("a token is valid for %s: it must be above 0 and at most %s", life, MaxTokenLife)
	}
	public, err := client.CoreV1().Secrets(namespace).Get(ctx, PublicSecret, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("the CA of agents: Secret %s/%s: %w", namespace, PublicSecret, err)
	}
	certs, err := identity.Certificates(public.Data[authoritiesKey])
	if err != nil {
		return "", fmt.Errorf("the CA of agents: Secret %s/%s: %w", namespace, PublicSecret, err)
	}
	token := joining.NewToken(identity.Digest(certs[0])) // by which federator serves
	text, err := json.Marshal(record{Hash: token.Hash(), Member: member, UID: uid, Expires: time.Now().Add(life).UTC().Truncate(time.Second)})
	if err != nil {
		return "", err
	}
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{token.ID(): text}})
	if err != nil {
		return "", err
	}
	if _, err := client.CoreV1().Secrets(namespace).Patch(ctx, TokenSecret, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return "", fmt.Errorf("recording the token: Secret %s/%s: %w", namespace, TokenSecret, err)
	}
	return token.String(), nil
}

// Errors of a token that is refused.
var (
	errUnknownToken = errors.New("the token is not known: it was used, has expired, or is not of this federator")
	errExpiredToken = errors.New("the token has expired")
)

// find returns what is known of a token that may be used by the key with a digest.
func find(s *corev1.Secret, token joining.Token, key string, now time.Time) (record, error) {
	var r record
	text, has := s.Data[token.ID()]
	if !has || json.Unmarshal(text, &r) != nil || !token.Matches(r.Hash) || r.Key != "" && r.Key != key {
		return r, errUnknownToken
	}
	if !now.Before(r.Expires) {
		return r, errExpiredToken
	}
	return r, nil
}

// maxConflicts is how often a Secret that another process has written is read again.
const maxConflicts = 20

// use uses a token up, by a key: of all who try at once, at whichever process, it succeeds for one key. Tokens that have
// expired go with it.
func use(ctx context.Context, secrets corev1client.SecretInterface, s *corev1.Secret, token joining.Token, key string, now time.Time) error {
	for range maxConflicts {
		r, err := find(s, token, key, now)
		if err != nil || r.Key == key {
			return err
		}
		r.Key = key
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		s = s.DeepCopy() // others may read it
		s.Data[token.ID()] = text
		prune(s, now)
		_, err = secrets.Update(ctx, s, metav1.UpdateOptions{}) // only if it is as it was read
		if !apierrors.IsConflict(err) {
			return err
		}
		if s, err = secrets.Get(ctx, TokenSecret, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return errors.New("the tokens are written all the time")
}

// prune drops tokens that have expired, or make no sense. It reports whether there were any.
func prune(s *corev1.Secret, now time.Time) bool {
	before := len(s.Data)
	maps.DeleteFunc(s.Data, func(_ string, text []byte) bool {
		var r record
		return json.Unmarshal(text, &r) != nil || !now.Before(r.Expires)
	})
	return len(s.Data) != before
}

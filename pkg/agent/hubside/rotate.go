package hubside

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/internal/authority"
)

// RotateAuthority adds a CA, which from then on signs the certificates of agents. Where old ones are dropped, the newest
// is the only one that is left: agents that have not renewed since it came must join again, and what is connected by an
// old one is disconnected. That there is nothing to drop is an error, not to lock the fleet out by dropping twice.
func RotateAuthority(ctx context.Context, client kubernetes.Interface, namespace string, dropOld bool) error {
	secrets := client.CoreV1().Secrets(namespace)
	s, err := secrets.Get(ctx, AuthoritySecret, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the CAs of agents: Secret %s/%s: %w", namespace, AuthoritySecret, err)
	}
	change := withAnother
	if dropOld {
		change = withNewest
	}
	if s.Data, err = change(s.Data, time.Now()); err == nil {
		_, err = secrets.Update(ctx, s, metav1.UpdateOptions{}) // only if it is as it was read
	}
	if err != nil {
		return fmt.Errorf("the CAs of agents: Secret %s/%s: %w", namespace, AuthoritySecret, err)
	}
	return nil
}

// withAnother returns the data of a Secret with one more CA.
func withAnother(data map[string][]byte, now time.Time) (map[string][]byte, error) {
	all, _, err := parseAuthorities(data, now)
	if err != nil && !errors.Is(err, authority.ErrNone) { // that is what another one is good for
		return nil, err
	}
	if len(all) >= maxAuthorities {
		return nil, fmt.Errorf("there are %d CAs: drop the old ones (--drop-old) once agents know the newest, before there can be another", len(all))
	}
	added, err := all.next(now)
	if err != nil {
		return nil, err
	}
	out := maps.Clone(data)
	if out == nil {
		out = map[string][]byte{}
	}
	maps.Copy(out, added)
	after, _, err := parseAuthorities(out, now)
	if err == nil && len(after) != len(all)+1 {
		err = errors.New("the CA that is made is not usable")
	}
	return out, err
}

// withNewest returns the data of a Secret with no other CA than the newest.
func withNewest(data map[string][]byte, now time.Time) (map[string][]byte, error) {
	all, _, err := parseAuthorities(data, now)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 1:
		return nil, errors.New("there is one CA, and no old one to drop. " +
			"If its key has leaked, make another with rotate-ca and then drop it with --drop-old: agents that have not renewed in between must join again")
	}
	keep := all[len(all)-1] // also if it is not valid yet: it is what --drop-old is to leave
	if !keep.Signs(now) {
		return nil, fmt.Errorf("the newest CA, %s, has no key, or is not valid before %s: the old ones are still needed", keep.Name, keep.Cert.NotBefore.Format(time.RFC3339))
	}
	out := maps.Clone(data)
	maps.DeleteFunc(out, func(name string, _ []byte) bool {
		return (strings.HasSuffix(name, certSuffix) || strings.HasSuffix(name, keySuffix)) && name != keep.Name+certSuffix && name != keep.Name+keySuffix
	})
	_, _, err = parseAuthorities(out, now)
	return out, err
}

package client

import (
	"errors"
	"fmt"
	"strings"
)

// Key names one object of a kind in the fleet.
type Key struct {
	// Member is <namespace>/<name> of the member's Cluster.
	Member string
	// Namespace is "" for cluster-scoped objects.
	Namespace string
	Name      string
}

// ErrKey is returned for a string that is not a key.
var ErrKey = errors.New("not a key of <member-namespace>/<member>[/<namespace>]/<name>")

// String returns the key as <member-namespace>/<member>/<namespace>/<name>, or
// without the namespace for a cluster-scoped object. It is the inverse of
// ParseKey for every key that ParseKey returns.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Member + "/" + k.Name
	}
	return k.Member + "/" + k.Namespace + "/" + k.Name
}

// ParseKey is the inverse of String. Its only error wraps ErrKey.
func ParseKey(s string) (Key, error) {
	parts := strings.Split(s, "/")
	for _, p := range parts {
		if p == "" {
			return Key{}, fmt.Errorf("%q: %w", s, ErrKey)
		}
	}
	switch len(parts) {
	case 3:
		return Key{Member: parts[0] + "/" + parts[1], Name: parts[2]}, nil
	case 4:
		return Key{Member: parts[0] + "/" + parts[1], Namespace: parts[2], Name: parts[3]}, nil
	default:
		return Key{}, fmt.Errorf("%q: %w", s, ErrKey)
	}
}

package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	configMapPrefix = "federator-notices-"
	boxKey          = "notices.json"
	hubTimeout      = 10 * time.Second
)

// store keeps a box in a ConfigMap. It is used by one goroutine.
type store struct {
	maps    typedcorev1.ConfigMapInterface
	name    string
	version string // resourceVersion of what was read or written last; "" where there is none
}

// load reads the box: an empty one where there is none.
func (s *store) load(ctx context.Context) (*box, error) {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	m, err := s.maps.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.version = ""
		return &box{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", s.name, err)
	}
	b := &box{}
	if text := m.Data[boxKey]; text != "" {
		if err := json.Unmarshal([]byte(text), b); err != nil {
			return nil, fmt.Errorf("ConfigMap %s: %s: %w: delete the ConfigMap to start over", s.name, boxKey, err)
		}
	}
	s.version = m.ResourceVersion
	return b, nil
}

// save writes the box that replaces the one that was loaded: an error if another process has
// written it since.
func (s *store) save(ctx context.Context, b *box) error {
	text, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", s.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.name, ResourceVersion: s.version, Labels: map[string]string{"app.kubernetes.io/managed-by": "federator"},
		},
		Data: map[string]string{boxKey: string(text)},
	}
	var made *corev1.ConfigMap
	if s.version == "" {
		made, err = s.maps.Create(ctx, m, metav1.CreateOptions{FieldManager: "federator"})
	} else {
		made, err = s.maps.Update(ctx, m, metav1.UpdateOptions{FieldManager: "federator"})
	}
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", s.name, err)
	}
	s.version = made.ResourceVersion
	return nil
}

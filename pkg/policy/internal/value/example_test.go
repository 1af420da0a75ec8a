package value_test

import (
	"fmt"

	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/value"
)

func Example() {
	var a value.Arena
	pod, err := value.Decode(&a, []byte(`{"metadata":{"labels":{"app":"web"}},"status":{"phase":"Running"}}`), mask.Path(mask.Whole(), "metadata"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pod.Field("metadata").Field("labels").Field("app").Str())
	fmt.Println(pod.Field("status").Defined())
	// Output:
	// web
	// false
}

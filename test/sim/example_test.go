package sim_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/test/sim"
)

func Example() {
	fleet, err := sim.New(sim.Options{Members: 2})
	if err != nil {
		panic(err)
	}
	defer fleet.Close()
	m := fleet.Members()[1]
	err = m.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}})
	if err != nil {
		panic(err)
	}
	client, err := kubernetes.NewForConfig(m.RESTConfig())
	if err != nil {
		panic(err)
	}
	list, err := client.CoreV1().ConfigMaps("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println(m.Name(), list.Items[0].Name, m.Requests().Verb("list"))
	// Output: member-1 settings 1
}

"""Brokers that divide their work anew are asked again; what they refuse is not."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.connectors.kafka.refusal import AGAIN, patiently


class Brokers:
    """Answer with these errors, one after another, and then with a figure."""

    def __init__(self, *codes):
        self.codes, self.asked = list(codes), 0

    def __call__(self):
        self.asked += 1
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return 7


@pytest.mark.parametrize("code", sorted(AGAIN))
def test_a_broker_that_is_not_ready_is_asked_again(code):
    brokers = Brokers(code, code)
    assert patiently(brokers, 5) == 7
    assert brokers.asked == 3


def test_patience_has_an_end():
    with pytest.raises(KafkaException, match="NOT_COORDINATOR"):
        patiently(Brokers(*[KafkaError.NOT_COORDINATOR] * 100), 0.3)


def test_a_refusal_is_not_asked_for_twice():
    brokers = Brokers(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="AUTHORIZATION"):
        patiently(brokers, 5)
    assert brokers.asked == 1

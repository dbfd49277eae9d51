"""The Faust application of the correlator, with every setting where Faust's own choice would lose or stall something."""

from __future__ import annotations

from typing import Any

import faust

from streams.config.settings import KafkaSettings
from streams.correlate.faust_consumer import Transport
from streams.kafka import clients
from streams.kafka.login import security
from streams.kafka.topics import CORRELATOR_APP


class App(faust.App):
    """Faust's application, on a consumer that loses nothing, and with no file of its own."""

    def _new_transport(self) -> Any:
        return Transport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Leave out the folders that Faust makes in the working directory: a store in memory never writes there.

        In a container that directory is `/`, where nobody but root may write, or nobody at all.
        """


class AsTheyAre(faust.Schema[bytes, bytes]):
    """Keys and values as bytes, without the codecs that Faust would look up for every record."""

    def compile(self, app: Any, **_: Any) -> Any:
        """What makes an event of a record."""

        async def decode(message: Any, *, propagate: bool = False) -> Any:
            return app.create_event(message.key, message.value, message.headers, message)

        return decode


def build_app(settings: KafkaSettings) -> App:
    """An application that declares no topics, serves no web pages and has no tables: the correlator reads its own changelog.

    Raises:
        ConfigError: when certificates or keys cannot be loaded.
    """
    session_s = settings.session_timeout_ms / 1000
    return App(
        settings.topic_prefix + CORRELATOR_APP,
        broker=[f"kafka://{address.strip()}" for address in settings.bootstrap.split(",")],
        broker_credentials=_credentials(settings),
        broker_client_id=clients.client_name(),
        broker_session_timeout=session_s,
        broker_heartbeat_interval=max(
            0.3, session_s / 12
        ),  # also how soon a member hears that another has left
        broker_rebalance_timeout=session_s * 2,
        broker_request_timeout=max(40.0, session_s * 2),
        broker_commit_interval=1.0,
        broker_check_crcs=settings.check_crcs,
        consumer_auto_offset_reset="earliest",
        stream_buffer_maxsize=32768,  # never reached: what waits is bounded by its bytes (`streams.kafka.backpressure`)
        stream_wait_empty=False,  # a stuck event must not keep the process from ending
        stream_recovery_delay=0.0,
        table_standby_replicas=1,  # without it Faust deals a partition's topics out to different members
        topic_allow_declare=False,  # topics are ours to make, with counts that are certain
        topic_disable_leader=True,
        topic_partitions=settings.cluster_partitions,
        producer_request_timeout=60.0,  # the default waits for twenty minutes
        web_enabled=False,
        autodiscover=False,
    )


def _credentials(settings: KafkaSettings) -> Any:
    """Faust's own way to say what `kafka.security_protocol` says.

    Raises:
        ConfigError: when certificates or keys cannot be loaded.
    """
    if settings.security_protocol == "PLAINTEXT":
        return None
    options = security(settings)
    context = options.get("ssl_context")
    if settings.security_protocol == "SSL":
        return faust.SSLCredentials(context)
    if settings.sasl_mechanism == "OAUTHBEARER":
        return faust.OAuthCredentials(oauth_cb=options["sasl_oauth_token_provider"], ssl_context=context)
    return faust.SASLCredentials(
        username=options["sasl_plain_username"],
        password=options["sasl_plain_password"],
        mechanism=settings.sasl_mechanism,
        ssl_context=context,
    )

"""Port between `check` and the features."""

from kafka_share_proxy.feature.checks import CheckReport


def test_feature_without_limitations_reports_one_line() -> None:
    report = CheckReport(line="Views: off (views.serve).")
    assert (report.obstacles, report.risks, report.remarks) == ((), (), ())
